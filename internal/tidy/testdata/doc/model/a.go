package model // want "no comment that says what it is for"
