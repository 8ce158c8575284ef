# Sends what rc cp fetches: see client/copy.go for what is said between them.
# It needs sh, ls, cat, tail, head, tar and readlink; stat and du if there are.
unset CDPATH IFS ENV
LC_ALL=C; export LC_ALL
path=$3 have=$4 sha256=$5 cksum=$6

say() { printf '@rc-cp %s\n' "$*" >&2; }
die() { say fail "$*"; exit 1; }
if command -v sha256sum >/dev/null 2>&1; then
	alg=sha256 had=$sha256
	sum() { set -- $(sha256sum); echo "$1"; }
else
	alg=cksum had=$cksum
	sum() { set -- $(cksum); echo "$1:$2"; }
fi

( while sleep 5; do say busy; done ) &
beat=$!
trap 'kill "$beat" 2>/dev/null' EXIT

set -- $(ls -lnd "$path" 2>/dev/null)
mode=${1:--} size=${5:-0}
stamp=$(stat -c %Y "$path" 2>/dev/null) || stamp=-
if [ -h "$path" ]; then
	kind=link
	whole() { readlink "$path"; }
elif [ -f "$path" ]; then
	kind=file
	[ -r "$path" ] || die "$path cannot be read"
	# One that has bytes and states no size, as those of /proc, is read to know.
	[ "$size" != 0 ] || size=$(($(wc -c <"$path")))
	# What is written to it from now on is not of this copy.
	whole() { head -c "$size" "$path"; }
elif [ -d "$path" ]; then
	kind=tree
	cd "$path" || die "$path cannot be entered"
	set -- $(du -sk . 2>/dev/null)
	size=$((${1:-0} * 1024))
	# Names in order and nothing of who reads, so that it is the same each time.
	same='--sort=name --format=gnu --owner=0 --group=0 --numeric-owner'
	tar $same -cf /dev/null -T /dev/null 2>/dev/null || same=
	whole() { tar $same -cf - .; }
elif [ -e "$path" ]; then
	die "$path is neither a file nor a directory nor a link"
else
	say absent
	exit 1
fi

n=0
if [ "$have" -gt 0 ]; then
	if [ "$kind" = file ]; then h=$(head -c "$have" "$path" | sum)
	else h=$(whole 2>/dev/null | head -c "$have" | sum); fi
	[ "$h" != "$had" ] || n=$have
fi
printf '@rc-cp %s %s %s %s %s %s\n' "$kind" "$alg" "$n" "$size" "$mode" "$stamp"
if [ "$n" = 0 ]; then whole || die "$path could not all be read"
elif [ "$kind" = file ]; then tail -c "+$((n + 1))" "$path" 2>/dev/null | head -c "$((size - n))"
else { whole || say fail "$path could not all be read"; } | tail -c "+$((n + 1))"; fi
say check
h=$({ whole || say fail "$path could not all be read"; } | sum)
say sum "$h"
