#!/bin/sh
# Runs and installs the artefacts of a release, as users do: the archive, the packages for RPM in an empty root, and those
# of Debian in a copy of this system. The copy is an overlay in a mount namespace, so all changes are discarded.
#
# Arguments: the folder of the artefacts, and the commit that the programs print.
set -eu
cd "$1"
commit=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

echo "trying the archive"
sh install.sh --from . --prefix "$work/prefix"
for program in flow taskwork tsp; do
    shown=$("$work/prefix/bin/$program" --version)
    case $shown in *"$commit"*) ;; *) fail "$program --version does not print the commit $commit: $shown" ;; esac
done
"$work/prefix/bin/routines" --version
script=share/doc/taskwork/deploy/scale/aws.sh
test -x "$work/prefix/$script" || fail "$script is not executable in the archive"

echo "trying the packages for RPM"
mkdir "$work/rpm"
rpm --root "$work/rpm" --initdb
rpm --root "$work/rpm" --install --nodeps --noscripts ./*."$(uname -m)".rpm
for program in flow routines taskwork tsp; do
    # Without any other file, so no library.
    chroot "$work/rpm" "/usr/bin/$program" --version
done
test -x "$work/rpm/usr/$script" || fail "$script is not executable in the package for RPM"

echo "trying the packages for Debian"
debs=$(ls ./*_"$(dpkg --print-architecture)".deb)
# One file runs on every distribution. Packages outside of Debian have no changelog of Debian, and their own licences.
suppressed=statically-linked-binary,no-changelog,copyright-not-using-common-license-for-apache2
# shellcheck disable=SC2086 # Names without blanks.
lintian --allow-root --fail-on error --suppress-tags "$suppressed" $debs
# A system may be configured to install no documents.
dpkg-deb --contents ./taskwork_*_"$(dpkg --print-architecture)".deb | grep -q "^-rwxr-xr-x .* ./usr/$script\$" ||
    fail "$script is not executable in the package for Debian"
mkdir "$work/given" "$work/copy"
# shellcheck disable=SC2086
cp $debs "$work/given"
cat > "$work/given/inside" << 'END'
packages="taskwork taskwork-flow taskwork-routines taskwork-tsp"
fail() {
    echo "$*" >&2
    exit 1
}
look() {
    id taskwork > /dev/null || fail "the user taskwork was not created"
    for program in flow routines taskwork tsp; do
        "/usr/bin/$program" --version > /dev/null || fail "$program does not run"
    done
    test -f '/usr/lib/systemd/system/taskwork-node@.service' || fail "there is no unit"
    test -z "$(find /etc/systemd -name 'taskwork*')" || fail "a unit was enabled"
    # Files that the operator of this system does not install, such as manuals, are not checked.
    changed=$(dpkg --verify $packages | grep -v ' /usr/share/' || true)
    test -z "$changed" || fail "files differ from those in the packages: $changed"
}
dpkg --install /trial/*.deb
look
# As at an upgrade.
dpkg --install /trial/*.deb
look
dpkg --listfiles $packages > /trial/files
dpkg --remove $packages
dpkg --purge $packages
while read -r file; do
    test ! -f "$file" || fail "$file was left behind"
done < /trial/files
id taskwork > /dev/null || fail "the user was removed, though files may belong to it"
END
# Processes of their own: all of them end with the first one.
# shellcheck disable=SC2016 # The inner shell expands the variables.
unshare --mount --pid --fork --kill-child sh -eu -c '
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /dev "$1/root/dev"
mount -t proc proc "$1/root/proc"
# The packages must create the user.
for file in passwd group shadow gshadow; do
    if test -f "$1/root/etc/$file"; then sed -i "/^taskwork:/d" "$1/root/etc/$file"; fi
done
mkdir "$1/root/trial"
cp "$2"/* "$1/root/trial"
cd "$1/root"
exec chroot . sh -eu /trial/inside
' copy "$work/copy" "$work/given" || fail "the packages do not work in a copy of this system, which only root can make"
echo "the archive and the packages work"
