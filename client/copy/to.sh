# Takes in what rc cp sends: see client/copy.go for what is said between them.
# It needs sh, ls, cat, tar, mkdir, mv, rm, chmod and ln; touch if there is one.
unset CDPATH IFS ENV
LC_ALL=C; export LC_ALL
dir=$3 name=$4 kind=$5 mode=$6 stamp=$7 part=./$8 target=$9
old=./$name stage=

say() { printf '@rc-cp %s\n' "$*" >&2; }
die() {
	[ -z "$stage" ] || { chmod -R u+rwx "$stage"; rm -rf "$stage"; }
	[ -s "$part" ] || say dropped # nothing is kept
	say fail "$*"
	exit 1
}
there() { [ -e "$1" ] || [ -h "$1" ]; }
size() { set -- $(ls -lnd "$1"); echo "$5"; }
if command -v sha256sum >/dev/null 2>&1; then
	alg=sha256
	sum() { set -- $(sha256sum); echo "$1"; }
else
	alg=cksum
	sum() { set -- $(cksum); echo "$1:$2"; }
fi

# clash fails if what is in $1 cannot go to where $2 is.
clash() {
	for n in "$1"/* "$1"/.[!.]* "$1"/..?*; do
		there "$n" || continue
		t=$2/${n##*/}
		if [ -d "$n" ] && [ ! -h "$n" ]; then
			if [ -d "$t" ]; then clash "$n" "$t"
			elif there "$t"; then die "$dir/${t#./} is no directory; move it away"; fi
		elif [ -d "$t" ]; then die "$dir/${t#./} is a directory; move it away"; fi
	done
}

# merge moves what is in $1 to where $2 is, each file by one rename. Directories
# that their owner may not write to are opened for that, and shut again.
merge() {
	chmod u+rwx "$1"
	if [ ! -w "$2" ] && chmod u+w "$2"; then set -- "$1" "$2" shut; fi
	for n in "$1"/* "$1"/.[!.]* "$1"/..?*; do
		there "$n" || continue
		t=$2/${n##*/}
		if [ -d "$n" ] && [ ! -h "$n" ] && [ -d "$t" ]; then
			merge "$n" "$t"
			continue
		fi
		shut= # such a directory cannot be moved either
		if [ -d "$n" ] && [ ! -h "$n" ] && [ ! -w "$n" ]; then shut=1; chmod u+w "$n"; fi
		mv -f "$n" "$t" || die "cannot put $dir/${t#./} there; what was there before is replaced in part"
		[ -z "$shut" ] || chmod u-w "$t"
	done
	[ -z "${3:-}" ] || chmod u-w "$2"
}

mkdir -p "$dir" || die "cannot make the directory $dir"
cd "$dir" || die "cannot enter the directory $dir"
umask 077
if [ "$kind" = tree ]; then
	if there "$old" && [ ! -d "$old" ]; then die "$dir/$name is no directory; move it away"; fi
elif [ -d "$old" ]; then die "$dir/$name is a directory; to copy into it write a / at its end"; fi

( while sleep 5; do if [ -f "$part" ]; then say at "$(size "$part")"; else say at 0; fi; done ) &
beat=$!
trap 'kill "$beat" 2>/dev/null' EXIT

n=0 h=-
if [ -h "$part" ]; then die "$dir/$part is a link that rc did not make; move it away"; fi
if [ -f "$part" ]; then n=$(size "$part"); h=$(sum <"$part"); fi
say have "$alg" "$n" "$h"
read -r from total want || die "nothing was sent"
if [ "$from" != "$n" ] || [ "$from" = 0 ]; then
	rm -rf "$part"
	printf "" >"$part" || die "cannot write in $dir"
fi
cat >>"$part" || die "cannot write in $dir"
n=$(size "$part")
[ "$n" = "$total" ] || die "$n of $total bytes have come"
say check
h=$(sum <"$part")
if [ "$h" != "$want" ]; then
	rm -f "$part"
	say dropped
	die "what has come is not what was to be sent: the source has changed meanwhile; copy it again"
fi

case $kind in
link)
	rm -f "$part"
	ln -s -- "$target" "$part" && mv -f "$part" "$old" || die "cannot put $dir/$name there"
	;;
tree)
	stage=$part.d
	[ ! -d "$stage" ] || { chmod -R u+rwx "$stage"; rm -rf "$stage"; } # of a try that was killed
	mkdir "$stage" || die "cannot write in $dir"
	(cd "$stage" && tar -xpof "../$part") || die "cannot unpack in $dir"
	if [ -d "$old" ]; then
		clash "$stage" "$old"
		merge "$stage" "$old"
		rm -rf "$stage"
	else
		mv -f "$stage" "$old" || die "cannot put $dir/$name there"
	fi
	rm -f "$part"
	;;
*)
	chmod "$mode" "$part" || die "cannot set the mode of $dir/$name"
	[ -z "$stamp" ] || TZ=UTC0 touch -t "$stamp" "$part" 2>/dev/null
	mv -f "$part" "$old" || die "cannot put $dir/$name there"
	;;
esac
say done
