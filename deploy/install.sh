#!/bin/sh
# Installs the programs, man pages, completions and units of a release.
#
#   sh install.sh --from DIR-OR-URL [--prefix DIR] [--signers FILE]
#
# --from     the folder or the address of a release, with SHA256SUMS and taskwork-VERSION-MACHINE.tar.gz
#            [default: the folder of this script]
# --prefix   the folder that gets bin, share and lib [default: /usr/local for root, otherwise ~/.local]
# --signers  check SHA256SUMS.sig by this file of allowed signers (see ssh-keygen); without it, only checksums are checked
#
# A file that is installed replaces one of the same name, also that of a running program. Nothing else is removed.
set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

usage() {
    echo "install.sh: $*; usage: sh install.sh --from DIR-OR-URL [--prefix DIR] [--signers FILE]" >&2
    exit 2
}

from=$(dirname "$0")
signers=
if test "$(id -u)" = 0; then prefix=/usr/local; else prefix=${HOME:-}/.local; fi
while test $# -gt 0; do
    option=$1
    case $option in
        --from | --prefix | --signers) test $# -ge 2 || usage "$option needs a value" ;;
        *) usage "there is no option $option" ;;
    esac
    case $option in
        --from) from=${2%/} ;;
        --prefix) prefix=$2 ;;
        --signers) signers=$2 ;;
    esac
    shift 2
done
case $(uname -s)-$(uname -m) in
    Linux-x86_64) machine=x86_64 ;;
    Linux-aarch64 | Linux-arm64) machine=aarch64 ;;
    *) fail "no release has programs for $(uname -s) on $(uname -m): build them from their source" ;;
esac

tools="find grep mktemp sha256sum tar"
test -z "$signers" || tools="$tools ssh-keygen"
for tool in $tools; do
    command -v "$tool" > /dev/null || fail "$tool is missing: install it"
done

# All users may read the folders, also if root's files are private.
umask 022
# On the same file system as the programs, so that each file appears complete under its name.
mkdir -p "$prefix" || fail "$prefix cannot be created: use --prefix, or run this as root"
work=$(mktemp -d "$prefix/.install.XXXXXX") || fail "$prefix cannot be written: use --prefix, or run this as root"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Gets a file of the release.
get() {
    case $from in
        *://*)
            if command -v curl > /dev/null; then
                curl --fail --silent --show-error --location --output "$work/$1" "$from/$1"
            elif command -v wget > /dev/null; then
                wget --quiet --output-document="$work/$1" "$from/$1"
            else
                fail "downloads need curl or wget: install one, or download the release and use --from FOLDER"
            fi
            ;;
        *) cp "$from/$1" "$work/$1" ;;
    esac
}

get SHA256SUMS || fail "$from has no SHA256SUMS: --from takes the folder or the address of a release"
if test -n "$signers"; then
    get SHA256SUMS.sig || fail "$from has no signature, SHA256SUMS.sig: do not install it, or omit --signers"
    identity=$(ssh-keygen -Y find-principals -s "$work/SHA256SUMS.sig" -f "$signers") ||
        fail "$from is signed by a key that is not in $signers: do not install it"
    ssh-keygen -Y verify -n taskwork-release -I "${identity%%,*}" -f "$signers" -s "$work/SHA256SUMS.sig" \
        < "$work/SHA256SUMS" || fail "the signature of $from is wrong: do not install it"
fi
line=$(grep -- "-$machine\\.tar\\.gz\$" "$work/SHA256SUMS") || fail "$from has no programs for $machine"
archive=${line##* }
get "$archive" || fail "$from has no $archive"
(cd "$work" && printf '%s\n' "$line" | sha256sum -c - > /dev/null 2>&1) ||
    fail "the checksum of $from/$archive is wrong: get it again"
top=$work/${archive%-"$machine".tar.gz}
tar -xzf "$work/$archive" -C "$work" || fail "$from/$archive cannot be unpacked to $work"
# In files: a pipe would hide a failure of find.
for kind in d f; do
    (cd "$top" && find . -type "$kind") > "$work/$kind" || fail "the files of $from/$archive cannot be listed"
done
test -s "$work/f" || fail "$from/$archive contains no files: get it again"
while read -r folder; do
    mkdir -p "$prefix/$folder" || fail "$prefix/$folder cannot be created"
done < "$work/d"
while read -r file; do
    mv -f "$top/$file" "$prefix/$file" || fail "$prefix/$file cannot be written"
done < "$work/f"
echo "installed ${top##*/} in $prefix"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "$prefix/bin is not in PATH" ;;
esac
