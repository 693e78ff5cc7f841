# Runs in a copy of this system: installs the packages of a release, looks at what is there, and removes them.

fail() {
    echo "$*" >&2
    exit 1
}

look() {
    id taskwork > /dev/null || fail "the user taskwork was not made"
    taskwork --version
    tsp --version
    test -f '/usr/lib/systemd/system/taskwork-node@.service' || fail "there is no unit"
    test -z "$(find /etc/systemd -name 'taskwork*')" || fail "a unit was enabled"
    # What an operator of this system does not install, such as manuals, is not looked for.
    changed=$(dpkg --verify taskwork taskwork-tsp | grep -v ' /usr/share/' || true)
    test -z "$changed" || fail "files differ from those in the packages: $changed"
}

dpkg --install /trial/*.deb
look
# As at an upgrade.
dpkg --install /trial/*.deb
look

dpkg --listfiles taskwork taskwork-tsp > /trial/files
dpkg --remove taskwork-tsp taskwork
dpkg --purge taskwork-tsp taskwork
while read -r file; do
    test ! -f "$file" || fail "$file was left behind"
done < /trial/files
id taskwork > /dev/null || fail "the user was removed, though files may belong to it"
