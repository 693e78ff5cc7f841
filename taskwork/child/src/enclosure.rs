//! Limits of a process, which the kernel enforces for it and its children permanently, without privileges.
//!
//! A process limits itself by [`Enclosure::enter`], and then becomes the program that is limited (`exec`). Landlock
//! restricts files, TCP ports and signals, and a filter of system calls everything that Landlock cannot restrict.

mod calls;

use std::{
    io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, NetPort,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
    path_beneath_rules,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Files that programs and their libraries read: code, the configuration of the C library, fonts, the state of the
/// machine. The rest of `/etc` may contain credentials.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/random",
    "/dev/urandom",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];

/// Devices without content.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];

/// The latest version of Landlock with known rights. A kernel restricts the rights that it knows.
const LATEST: ABI = ABI::V10;

/// The maximum number of open files of a process.
const OPEN_FILES_MAX: u64 = 4096;

/// The files and ports that a process may use. Everything else is denied.
#[derive(Debug, Clone, Default)]
pub struct Enclosure {
    /// Files and folders that are read, listed and executed, in addition to those of the system.
    pub read: Vec<PathBuf>,
    /// Folders with files that are read by name, but not listed.
    pub read_named: Vec<PathBuf>,
    /// Files and folders that are read and changed.
    pub write: Vec<PathBuf>,
    /// TCP ports, of any machine, to which the process connects.
    pub ports: Vec<u16>,
}

impl Enclosure {
    /// Returns a readable path that contains another one, if there is one. A link counts as its
    /// target.
    pub fn reads(&self, path: &Path) -> Option<&Path> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let path = real(path);
        let granted = SYSTEM
            .iter()
            .map(Path::new)
            .chain([&self.read, &self.write].into_iter().flatten().map(|it| &**it));
        granted.into_iter().find(|granted| path.starts_with(real(granted)))
    }

    /// Limits this thread, and all programs that it becomes or starts. The process should have no other thread.
    ///
    /// # Errors
    /// If the kernel cannot enforce the limits. Some of them may be in force then.
    pub fn enter(&self) -> io::Result<()> {
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft.min(OPEN_FILES_MAX), hard.min(OPEN_FILES_MAX))?;
        let restricted = self.restrict_files().map_err(|error| match error {
            RulesetError::HandleAccesses(_) => {
                unsupported("it cannot limit TCP ports: Linux 6.7 or later can")
            }
            error => io::Error::other(format!("Landlock refuses the limits: {error}")),
        })?;
        let LandlockStatus::Available { effective_abi, .. } = restricted.landlock else {
            return Err(unsupported(
                "Landlock is missing (Linux 5.13 or later has it) or disabled (the boot parameter lsm= must include landlock)",
            ));
        };
        // The next program cannot get them again. Otherwise a process of root reads the memory of others.
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        calls::deny(!self.ports.is_empty(), effective_abi >= ABI::V3)
    }

    /// Limits files, ports and signals as far as the kernel can.
    fn restrict_files(&self) -> Result<RestrictionStatus, RulesetError> {
        let change =
            AccessFs::from_all(LATEST) & !(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::MakeSock);
        let look = AccessFs::from_read(LATEST);
        let mut ruleset = Ruleset::default();
        if !self.ports.is_empty() {
            // Otherwise a process has no sockets of the network, in any version.
            ruleset = ruleset
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessNet::from_all(ABI::V4))?;
        }
        let ports =
            self.ports.iter().map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp)));
        let files: BitFlags<AccessFs> = AccessFs::ReadFile.into();
        let restricted = ruleset
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LATEST))?
            .scope(Scope::from_all(LATEST))?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM, look))?
            .add_rules(path_beneath_rules(&self.read, look))?
            .add_rules(path_beneath_rules(&self.read_named, files))?
            .add_rules(path_beneath_rules(DEVICES, change))?
            .add_rules(path_beneath_rules(&self.write, change))?
            .add_rules(ports)?
            .restrict_self()?;
        Ok(restricted)
    }
}

fn unsupported(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("this kernel cannot isolate processes: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::Enclosure;

    #[test]
    fn granted_folder_of_a_path_is_found_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("granted/within")).unwrap();
        fs::create_dir(at("granted-too")).unwrap();
        symlink(at("granted"), at("link")).unwrap();
        let enclosure = Enclosure { write: vec![at("link")], ..Enclosure::default() };
        assert_eq!(enclosure.reads(&at("granted/within")), Some(&*at("link")));
        assert_eq!(enclosure.reads(&at("granted-too")), None);
        assert_eq!(enclosure.reads(folder.path()), None);
        assert_eq!(enclosure.reads(Path::new("/usr/bin")), Some(Path::new("/usr")));
    }
}
