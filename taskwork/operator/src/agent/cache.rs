//! The programs that an agent keeps, by their content.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use taskwork::companion::{ObjectContent, ObjectHasher, ObjectName};
use taskwork_cli::Failure;
use tempfile::NamedTempFile;

/// The beginning of the names of files that are being written.
const PART: &str = "part-";
/// The age after which such a file belongs to no process any more.
const PART_AGE_MAX: Duration = Duration::from_secs(86_400);
/// The permissions of the folder, and of a program in it.
const FOLDER_MODE: u32 = 0o700;
const PROGRAM_MODE: u32 = 0o500;

/// A folder of programs, each named by its content. Several agents of a user may share it.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    bytes_max: u64,
}

impl Cache {
    /// Opens a folder, or creates it; `bytes_max` limits the total size of its programs.
    pub(super) fn open(folder: PathBuf, bytes_max: u64) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::failed(format!("--cache {}: {error}", folder.display()));
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder).map_err(failed)?;
        let metadata = fs::metadata(&folder).map_err(failed)?;
        let (mode, owner) = (metadata.permissions().mode() & 0o777, metadata.uid());
        // Whoever can write to it can make this process run any program.
        if mode & 0o077 != 0 || owner != nix::unistd::geteuid().as_raw() {
            return Err(Failure::usage(format!(
                "--cache {}: other users have access to it (mode {mode:03o}, owner {owner}). Give another folder, or make \
                 it your own: chmod 700",
                folder.display()
            )));
        }
        let cache = Self { folder, bytes_max };
        cache
            .sweep()
            .map_err(|error| Failure::failed(format!("--cache {}: {error}", cache.folder.display())))?;
        Ok(cache)
    }

    /// Returns the path of a program, which may not exist.
    pub(super) fn path(&self, name: ObjectName) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Returns the content of a program for other agents.
    pub(super) fn content(&self, name: ObjectName) -> impl ObjectContent {
        Kept(self.path(name))
    }

    /// Returns whether a program is there with its content, which is read once, and marks it as used. A file with another
    /// content is removed.
    ///
    /// # Errors
    /// If the file cannot be read or removed.
    pub(super) fn has(&self, name: ObjectName) -> io::Result<bool> {
        let path = self.path(name);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if ObjectHasher::name_of(&file)? == name {
            file.set_modified(SystemTime::now())?;
            return Ok(true);
        }
        tracing::warn!(program = %path.display(), "a kept program has another content than it had; it is removed");
        fs::remove_file(&path)?;
        Ok(false)
    }

    /// Creates an empty file for a program, which is removed unless it is [kept](Self::keep).
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn part(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(PART).tempfile_in(&self.folder)
    }

    /// Keeps a complete program under its name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn keep(&self, name: ObjectName, part: NamedTempFile) -> io::Result<()> {
        part.as_file().set_permissions(fs::Permissions::from_mode(PROGRAM_MODE))?;
        // Closed for writing before it gets its name: the system starts no program that is open for writing.
        part.into_temp_path().persist(self.path(name)).map_err(|error| error.error)
    }

    /// Returns all programs, the most recently used first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn list(&self) -> io::Result<Vec<ObjectName>> {
        let mut programs = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().and_then(|name| name.parse::<ObjectName>().ok())
            else {
                continue;
            };
            match entry.metadata().and_then(|metadata| metadata.modified()) {
                Ok(used) => programs.push((used, name)),
                // Another agent has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        programs.sort_unstable_by(|one, other| other.cmp(one));
        Ok(programs.into_iter().map(|(_, name)| name).collect())
    }

    /// Removes the least recently used programs beyond the limit, except those in use, and returns the removed ones.
    ///
    /// # Errors
    /// If the folder cannot be read, or a file cannot be removed.
    pub(super) fn shrink(&self, in_use: &BTreeSet<ObjectName>) -> io::Result<Vec<ObjectName>> {
        let (mut bytes, mut removed) = (0_u64, Vec::new());
        for name in self.list()? {
            bytes = bytes.saturating_add(name.bytes());
            if bytes > self.bytes_max && !in_use.contains(&name) {
                remove(&self.path(name))?;
                bytes -= name.bytes();
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// Removes files that were not completed.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_part = entry.file_name().to_str().is_some_and(|name| name.starts_with(PART));
            let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|since| since.elapsed());
            if is_part && matches!(age, Ok(Ok(age)) if age > PART_AGE_MAX) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The content of a file that is open only while a part of it is read, so that many can be offered.
struct Kept(PathBuf);

impl ObjectContent for Kept {
    fn part(&self, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        fs::File::open(&self.0)?.part(offset, bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn add(cache: &Cache, content: &[u8], used_s: u64) -> ObjectName {
        let mut hasher = ObjectHasher::new();
        hasher.add(content);
        let name = hasher.name();
        let mut part = cache.part().unwrap();
        part.write_all(content).unwrap();
        cache.keep(name, part).unwrap();
        let file = fs::File::open(cache.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(used_s)).unwrap();
        name
    }

    #[test]
    fn least_recently_used_programs_beyond_the_limit_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path().join("programs"), 8).unwrap();
        let [old, used, new] =
            [(b"old!", 1), (b"used", 2), (b"new!", 3)].map(|(content, at)| add(&cache, content, at));
        assert_eq!(cache.list().unwrap(), [new, used, old]);
        assert!(cache.has(old).unwrap(), "it is now the latest one");
        assert_eq!(cache.shrink(&BTreeSet::new()).unwrap(), [used]);
        assert_eq!(cache.list().unwrap(), [old, new]);
        let larger = add(&cache, b"a larger one", 4);
        assert_eq!(
            cache.shrink(&BTreeSet::from([larger, new])).unwrap(),
            [],
            "the latest fits, the others are in use"
        );
    }

    #[test]
    fn program_with_another_content_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path().join("programs"), 8).unwrap();
        let name = add(&cache, b"whole", 1);
        assert!(cache.has(name).unwrap());
        assert_eq!(fs::metadata(cache.path(name)).unwrap().permissions().mode() & 0o777, PROGRAM_MODE);
        fs::remove_file(cache.path(name)).unwrap();
        fs::write(cache.path(name), b"whol").unwrap();
        assert!(!cache.has(name).unwrap(), "it is truncated");
        assert!(!cache.path(name).exists());
    }

    #[test]
    fn folder_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Cache::open(folder.path().to_owned(), 8);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open().unwrap_err().to_string().contains("chmod 700"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(open().is_ok());
    }
}
