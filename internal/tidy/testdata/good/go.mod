module rcd

go 1.26
