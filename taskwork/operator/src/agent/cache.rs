//! The programs that an agent keeps, by their content.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use nix::unistd::geteuid;

use taskwork::companion::{ObjectContent, ObjectHasher, ObjectName};
use taskwork_cli::Failure;
use tempfile::NamedTempFile;

/// The beginning of the names of files that are being written.
const PART: &str = "part-";
/// The permissions of the folder, and of a program in it.
const FOLDER_MODE: u32 = 0o700;
const PROGRAM_MODE: u32 = 0o500;

/// A folder of programs, each named by its content. Several agents of a user may share it: a lock on a file shows that one
/// of them needs it.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    bytes_max: u64,
}

/// A program that no agent removes while this exists: its file, with a shared lock.
#[derive(Debug)]
pub(super) struct Pinned(#[expect(dead_code, reason = "it holds the lock")] fs::File);

/// The result of making room for a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// The programs that were removed.
    pub(super) removed: Vec<ObjectName>,
    /// Whether the program fits.
    pub(super) fits: bool,
}

impl Cache {
    /// Opens a folder, or creates it; `bytes_max` limits the total size of its programs.
    pub(super) fn open(folder: &Path, bytes_max: u64) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::failed(format!("--cache {}: {error}", folder.display()));
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(failed)?;
        let metadata = fs::metadata(folder).map_err(failed)?;
        let (mode, owner) = (metadata.permissions().mode() & 0o777, metadata.uid());
        // Whoever can write to it, or rename it, can make this process run any program.
        if mode & 0o077 != 0 || owner != geteuid().as_raw() {
            return Err(Failure::usage(format!(
                "--cache {}: other users have access to it (mode {mode:03o}, owner {owner}). Give another folder, or make \
                 it your own: chmod 700",
                folder.display()
            )));
        }
        let folder = folder.canonicalize().map_err(failed)?;
        for parent in folder.ancestors().skip(1) {
            let metadata = fs::metadata(parent).map_err(failed)?;
            let (mode, owner) = (metadata.permissions().mode() & 0o7777, metadata.uid());
            if is_open_to_others(mode, owner, geteuid().as_raw()) {
                return Err(Failure::usage(format!(
                    "--cache {}: other users can rename it, since they can write to {} (mode {mode:04o}, owner {owner}). \
                     Give another folder, or make that one your own: chmod go-w",
                    folder.display(),
                    parent.display()
                )));
            }
        }
        let cache = Self { folder, bytes_max };
        cache
            .sweep()
            .map_err(|error| Failure::failed(format!("--cache {}: {error}", cache.folder.display())))?;
        Ok(cache)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a program, which may not exist.
    pub(super) fn path(&self, name: ObjectName) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Returns the number of bytes by which the folder grows with a program: none, if it is there.
    pub(super) fn lacks(&self, name: ObjectName) -> u64 {
        if self.path(name).exists() { 0 } else { name.bytes() }
    }

    /// Returns the content of a program for other agents.
    pub(super) fn content(&self, name: ObjectName) -> impl ObjectContent {
        Kept(self.path(name))
    }

    /// Returns a program if it is there with its content, which is read once, and marks it as used. A file with another
    /// content is removed.
    ///
    /// # Errors
    /// If the file cannot be read, locked or removed.
    pub(super) fn get(&self, name: ObjectName) -> io::Result<Option<Pinned>> {
        let path = self.path(name);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.lock_shared()?;
        // Another agent may have removed it before the lock.
        if file.metadata()?.nlink() == 0 {
            return Ok(None);
        }
        if ObjectHasher::name_of(&file)? == name {
            file.set_modified(SystemTime::now())?;
            return Ok(Some(Pinned(file)));
        }
        tracing::warn!(program = %path.display(), "a kept program has another content than it had; it is removed");
        remove(&path)?;
        Ok(None)
    }

    /// Creates an empty file for a program, which is removed unless it is [kept](Self::keep).
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn part(&self) -> io::Result<NamedTempFile> {
        let part = tempfile::Builder::new().prefix(PART).tempfile_in(&self.folder)?;
        // It shows that a process is writing the file.
        part.as_file().lock()?;
        Ok(part)
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

    /// Makes room for so many further bytes: removes the least recently used programs that no agent needs. If that is not
    /// enough, none is removed.
    ///
    /// # Errors
    /// If the folder cannot be read, or a file cannot be removed.
    pub(super) fn make_room(&self, bytes: u64) -> io::Result<Room> {
        let mut programs = self.list()?;
        let mut total = programs.iter().fold(bytes, |total, name| total.saturating_add(name.bytes()));
        let mut unused = Vec::new();
        while total > self.bytes_max {
            let Some(oldest) = programs.pop() else { return Ok(Room { removed: Vec::new(), fits: false }) };
            // The locks are held until the files are removed.
            if let Some(lock) = unused_file(&self.path(oldest)) {
                total -= oldest.bytes();
                unused.push((oldest, lock));
            }
        }
        for (name, _) in &unused {
            remove(&self.path(*name))?;
        }
        Ok(Room { removed: unused.into_iter().map(|(name, _)| name).collect(), fits: true })
    }

    /// Removes files that a process has not completed before it ended.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_part = entry.file_name().to_str().is_some_and(|name| name.starts_with(PART));
            if is_part && unused_file(&entry.path()).is_some() {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Returns a file with an exclusive lock, unless a process needs it or it cannot be locked.
fn unused_file(path: &Path) -> Option<fs::File> {
    let file = fs::File::open(path).ok()?;
    file.try_lock().is_ok().then_some(file)
}

/// Returns whether users other than root and this one can rename the entries of a folder of others.
fn is_open_to_others(mode: u32, owner: u32, user: u32) -> bool {
    let is_sticky = mode & 0o1000 != 0;
    (owner != 0 && owner != user) || (mode & 0o022 != 0 && !is_sticky)
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
    use std::{io::Write as _, time::Duration};

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
        let cache = Cache::open(&folder.path().join("programs"), 8).unwrap();
        let [old, used, new] =
            [(b"old!", 1), (b"used", 2), (b"new!", 3)].map(|(content, at)| add(&cache, content, at));
        assert_eq!(cache.list().unwrap(), [new, used, old]);
        drop(cache.get(old).unwrap().expect("it is now the latest one"));
        assert_eq!(cache.make_room(0).unwrap(), Room { removed: vec![used], fits: true });
        assert_eq!(cache.list().unwrap(), [old, new]);
        assert_eq!(cache.make_room(4).unwrap(), Room { removed: vec![new], fits: true });
    }

    #[test]
    fn program_that_an_agent_needs_is_not_removed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let [cache, others] =
            [8, 8].map(|bytes| Cache::open(&folder.path().join("programs"), bytes).unwrap());
        let [old, new] = [(b"old!", 1), (b"new!", 2)].map(|(content, at)| add(&cache, content, at));
        let needed = cache.get(old).unwrap();
        let fits = |bytes| others.make_room(bytes).unwrap();
        assert_eq!(fits(5), Room { removed: vec![], fits: false }, "nothing is removed in vain");
        assert_eq!(fits(4), Room { removed: vec![new], fits: true });
        drop(needed);
        assert_eq!(fits(8), Room { removed: vec![old], fits: true });
        assert_eq!(fits(9), Room { removed: vec![], fits: false });
    }

    #[test]
    fn incomplete_file_is_removed_once_its_process_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Cache::open(&folder.path().join("programs"), 8).unwrap();
        let cache = open();
        let part = cache.part().unwrap();
        open();
        assert!(part.path().exists());
        // As after a kill: the file stays, and the lock does not.
        let (file, path) = part.into_parts();
        let path = path.keep().unwrap();
        drop(file);
        open();
        assert!(!path.exists());
    }

    #[test]
    fn folder_that_others_can_rename_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path().join("shared");
        fs::create_dir(&parent).unwrap();
        let open = |mode| {
            fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
            Cache::open(&parent.join("programs"), 8)
        };
        for mode in [0o777, 0o775, 0o757] {
            let refused = open(mode).unwrap_err().to_string();
            assert!(refused.contains("shared (mode") && refused.contains("chmod go-w"), "{refused}");
        }
        assert!(open(0o1777).is_ok() && open(0o755).is_ok());
        assert!(is_open_to_others(0o755, 1000, 1001) && !is_open_to_others(0o755, 1000, 1000));
        assert!(!is_open_to_others(0o755, 0, 1000));
    }

    #[test]
    fn program_with_another_content_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("programs"), 8).unwrap();
        let name = add(&cache, b"whole", 1);
        assert!(cache.get(name).unwrap().is_some());
        assert_eq!(fs::metadata(cache.path(name)).unwrap().permissions().mode() & 0o777, PROGRAM_MODE);
        fs::remove_file(cache.path(name)).unwrap();
        fs::write(cache.path(name), b"whol").unwrap();
        assert!(cache.get(name).unwrap().is_none(), "it is truncated");
        assert!(!cache.path(name).exists());
    }

    #[test]
    fn folder_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Cache::open(folder.path(), 8);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open().unwrap_err().to_string().contains("chmod 700"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(open().is_ok());
    }
}
