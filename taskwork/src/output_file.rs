//! Files at paths that a user names: results, pictures, reports.

use std::{
    fs::{self, OpenOptions},
    hash::{BuildHasher as _, RandomState},
    io::{self, ErrorKind, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// The number of symbolic links that are followed in a row, as in Linux.
const LINKS_MAX: usize = 40;
/// The number of characters of a file's name that its temporary file repeats: a name may be as long as the file
/// system allows.
const NAME_SHOWN_MAX: usize = 32;
/// The number of hexadecimal digits of the hash of a file's name in the name of its temporary file.
const HASH_DIGITS: usize = 16;
/// The number of hexadecimal digits at the end of the name of a temporary file, which differ for each attempt.
const ATTEMPT_DIGITS: usize = 16;

/// A file that a user named as an output.
///
/// It is written as by a shell redirection, except that a regular file is replaced atomically: at every moment, its
/// path has either the previous content or all of the new one.
///
/// | the path names | effect |
/// |---|---|
/// | nothing, or a regular file | replaced atomically; its mode is kept, except for [`executable`](Self::executable) |
/// | a symbolic link | the link is kept, and its target is written |
/// | a device, a FIFO | written directly; a FIFO waits for a reader |
/// | `/dev/stdout`, `/dev/stderr`, `/dev/fd/N` | appended to that open file |
/// | a directory | refused |
#[derive(Debug)]
pub struct OutputFile<'a> {
    path: &'a Path,
    is_executable: Option<bool>,
    operation: Option<&'a str>,
    folder: Option<&'a Path>,
}

/// The destination that a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Nothing or a regular file, without links.
    File(PathBuf),
    /// It cannot be replaced: a device, a FIFO, a socket.
    Special(PathBuf),
    /// An open file of this process.
    Open(PathBuf),
}

impl Place {
    fn path(&self) -> &Path {
        let (Self::File(path) | Self::Special(path) | Self::Open(path)) = self;
        path
    }
}

impl<'a> OutputFile<'a> {
    /// Creates a description of the file; nothing is written.
    pub fn new(path: &'a Path) -> Self {
        Self { path, is_executable: None, operation: None, folder: None }
    }

    /// Sets whether those that may read the file may execute it. By default, a new file is not executable, and a
    /// previous one keeps its mode.
    #[must_use]
    pub fn executable(self, is_executable: bool) -> Self {
        Self { is_executable: Some(is_executable), ..self }
    }

    /// Sets the name of the operation, of at most 64 letters, digits and dots. A later attempt of the same operation
    /// removes the temporary files of killed attempts; an earlier attempt that still runs then fails.
    #[must_use]
    pub fn attempt_of(self, operation: &'a str) -> Self {
        Self { operation: Some(operation), ..self }
    }

    /// Permits only files in this folder and below it, with all symbolic links followed. The folder's own path must not
    /// contain links.
    #[must_use]
    pub fn within(self, folder: &'a Path) -> Self {
        Self { folder: Some(folder), ..self }
    }

    /// Writes the content.
    ///
    /// # Errors
    /// If it cannot be written. A regular file then has its previous content.
    pub fn write(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let place = self.place()?;
        if let Some(folder) = self.folder
            && !place.path().starts_with(folder)
        {
            let refused = format!("it is not in {}", folder.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, refused));
        }
        match place {
            Place::File(file) => self.replace(&file, content),
            Place::Special(file) => content(&mut OpenOptions::new().write(true).open(file)?),
            // The descriptor of this process has its own position: output by another would be overwritten.
            Place::Open(file) if file.ends_with("fd/1") => {
                let mut out = io::stdout().lock();
                content(&mut out)?;
                out.flush()
            }
            Place::Open(file) if file.ends_with("fd/2") => content(&mut io::stderr().lock()),
            Place::Open(file) => content(&mut OpenOptions::new().append(true).open(file)?),
        }
    }

    /// Follows symbolic links.
    fn place(&self) -> io::Result<Place> {
        if self.path.file_name().is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it does not end with a name"));
        }
        if self.path.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "there is a directory of this name"));
        }
        let descriptors = fs::canonicalize("/proc/self/fd").ok();
        let mut place = self.path.to_owned();
        for _ in 0..LINKS_MAX {
            let name = place
                .file_name()
                .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it does not end with a name"))?;
            let folder = fs::canonicalize(folder_of(&place))?;
            let file = folder.join(name);
            if Some(&folder) == descriptors.as_ref() {
                return Ok(Place::Open(file));
            }
            match fs::symlink_metadata(&file) {
                Ok(found) if found.is_symlink() => place = folder.join(fs::read_link(&file)?),
                Ok(found) if found.is_file() => return Ok(Place::File(file)),
                Ok(_) => return Ok(Place::Special(file)),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::File(file)),
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::InvalidInput, "it has too many symbolic links"))
    }

    /// Writes a temporary file and gives it the name of the regular file, if there is one.
    fn replace(&self, file: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let folder = folder_of(file);
        let new = Temporary(self.temporary(file)?);
        let previous = fs::metadata(file).ok();
        let mode = match (&previous, self.is_executable) {
            (Some(_), _) => 0o600,
            (None, Some(true)) => 0o777,
            (None, _) => 0o666,
        };
        let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new.0);
        let mut to = created.map_err(|error| {
            let remedy = "name a folder in which files can be created";
            io::Error::new(error.kind(), format!("no file can be created next to it: {error}; {remedy}"))
        })?;
        if let Some(previous) = previous {
            keep_mode(&to, &previous, self.is_executable)?;
        }
        content(&mut to)?;
        to.sync_all()?;
        fs::rename(&new.0, file)?;
        // The name is durable only once the folder is.
        fs::File::open(folder)?.sync_all()
    }

    /// Returns an unused name in the folder of a file, and removes the temporary files of earlier attempts.
    ///
    /// An attempt never reuses such a name: another process that was only stopped would rename the file of this one
    /// before it is complete.
    fn temporary(&self, file: &Path) -> io::Result<PathBuf> {
        let name = file.file_name().unwrap_or_default();
        let shown: String = name.to_string_lossy().chars().take(NAME_SHOWN_MAX).collect();
        // Long names may have the same start.
        let hash = blake3::hash(name.as_encoded_bytes()).to_hex();
        let prefix = format!(".{shown}.{}.{}.", &hash[..HASH_DIGITS], self.operation.unwrap_or("new"));
        let folder = folder_of(file);
        if self.operation.is_some() {
            for other in fs::read_dir(folder)?.flatten() {
                let name = other.file_name();
                if name.to_str().and_then(|name| name.strip_prefix(&prefix)).is_some_and(is_attempt) {
                    // It may have been renamed by its owner.
                    let _ = fs::remove_file(other.path());
                }
            }
        }
        Ok(folder.join(format!("{prefix}{:0ATTEMPT_DIGITS$x}", RandomState::new().hash_one(()))))
    }
}

/// Returns whether the end of a name is that of a temporary file.
fn is_attempt(end: &str) -> bool {
    end.len() == ATTEMPT_DIGITS && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A file that is removed unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Gives a new file the owner and mode of the previous one, except for the executable bits if those are given.
fn keep_mode(new: &fs::File, previous: &fs::Metadata, is_executable: Option<bool>) -> io::Result<()> {
    let mut mode = previous.mode() & 0o777;
    match is_executable {
        Some(true) => mode |= (mode & 0o444) >> 2,
        Some(false) => mode &= !0o111,
        None => {}
    }
    let is = new.metadata()?;
    let is_same_owner = (is.uid(), is.gid()) == (previous.uid(), previous.gid());
    if !is_same_owner && fchown(new, Some(previous.uid()), Some(previous.gid())).is_err() {
        // Another group must not read more than everyone could.
        mode &= 0o707 | (mode & 0o7) << 3;
    }
    new.set_permissions(fs::Permissions::from_mode(mode))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, process::Command, sync::mpsc, thread, time::Duration};

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        OutputFile::new(path).write(|to| to.write_all(text.as_bytes()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn regular_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("result");
        write(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let before = fs::File::open(&file).unwrap();
        write(&file, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(io::read_to_string(before).unwrap(), "one", "a reader keeps the whole previous content");
        assert_eq!(names(folder.path()), ["result"]);
    }

    #[test]
    fn symbolic_links_are_kept_and_their_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        symlink("deep/first", at("link")).unwrap();
        symlink("../target", at("deep/first")).unwrap();
        for text in ["created", "replaced"] {
            write(&at("link"), text).unwrap();
            assert_eq!(fs::read_to_string(at("target")).unwrap(), text);
        }
        assert!(at("link").is_symlink() && at("deep/first").is_symlink());
        assert!(!at("target").is_symlink());
        symlink("circle", at("circle")).unwrap();
        assert!(write(&at("circle"), "").unwrap_err().to_string().contains("too many symbolic links"));
        assert_eq!(names(&at("deep")), ["first"]);
    }

    #[test]
    fn fifo_and_device_are_written_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        symlink(&fifo, folder.path().join("link")).unwrap();
        for path in ["fifo", "link"].map(|name| folder.path().join(name)) {
            let (send, read) = mpsc::channel();
            let reader = fifo.clone();
            thread::spawn(move || send.send(fs::read_to_string(reader).unwrap()));
            write(&path, "text").unwrap();
            assert_eq!(read.recv_timeout(Duration::from_secs(60)).unwrap(), "text");
        }
        write(Path::new("/dev/null"), "text").unwrap();
        let full = write(Path::new("/dev/full"), "text").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        for device in ["/dev/null", "/dev/full"].map(Path::new) {
            assert!(!fs::symlink_metadata(device).unwrap().is_file());
        }
        assert_eq!(names(folder.path()), ["fifo", "link"]);
    }

    #[test]
    fn open_file_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        fs::write(&file, "before ").unwrap();
        let open = OpenOptions::new().append(true).open(&file).unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        write(Path::new(&path), "after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "before after");
        let place = |path: &str| OutputFile::new(Path::new(path)).place().unwrap();
        assert!(matches!(place("/dev/stdout"), Place::Open(file) if file.ends_with("fd/1")));
        assert!(matches!(place("/dev/stderr"), Place::Open(file) if file.ends_with("fd/2")));
    }

    #[test]
    fn leftovers_of_killed_attempts_are_removed_by_the_next_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report");
        let of = |operation: &'static str| OutputFile::new(&file).attempt_of(operation);
        let killed = of("1").temporary(&file).unwrap();
        let other = of("2").temporary(&file).unwrap();
        for leftover in [&killed, &other] {
            fs::write(leftover, "part").unwrap();
        }
        of("1").write(|to| to.write_all(b"all")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "all");
        assert!(!killed.exists() && other.exists());
    }

    #[test]
    fn attempt_spares_temporary_files_of_similar_names_and_files_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(format!("Homo_sapiens.GRCh38.dna.chromosome.{name}.fa"));
        let (first, second) = (of("1"), of("2"));
        let write_second = || OutputFile::new(&second).attempt_of("task").write(|to| to.write_all(b"2"));
        let write_both = OutputFile::new(&first).attempt_of("task").write(|to| {
            write_second()?;
            to.write_all(b"1")
        });
        write_both.unwrap();
        assert_eq!([&first, &second].map(|file| fs::read_to_string(file).unwrap()), ["1", "2"]);
        let build = folder.path().join("build");
        let attempt = OutputFile::new(&build).attempt_of("task");
        let similar = attempt.temporary(&build).unwrap().with_extension("yml");
        let of_user = [similar, folder.path().join(".build.task.yml")];
        for file in &of_user {
            fs::write(file, "").unwrap();
        }
        attempt.write(|to| to.write_all(b"all")).unwrap();
        assert!(of_user.iter().all(|file| file.exists()), "{:?}", names(folder.path()));
    }

    #[test]
    fn attempt_that_was_overtaken_does_not_publish_a_part_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report");
        let of = |operation: &'static str| OutputFile::new(&file).attempt_of(operation);
        let overtaken = of("1").write(|to| {
            to.write_all(b"first")?;
            of("1").write(|to| to.write_all(b"second"))
        });
        assert_eq!(overtaken.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(names(folder.path()), ["report"]);
    }

    #[test]
    fn files_outside_of_the_permitted_folder_are_refused_also_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("in/deep")).unwrap();
        fs::write(at("target"), "previous").unwrap();
        symlink("../target", at("in/link")).unwrap();
        symlink("..", at("in/up")).unwrap();
        let inside = at("in");
        let write = |path: &Path| OutputFile::new(path).within(&inside).write(|to| to.write_all(b"new"));
        for path in ["in/file", "in/deep/file", "in/deep/../other"].map(at) {
            write(&path).unwrap();
        }
        let refused = ["target", "in/link", "in/../target", "in/up/target", "inside"].map(at);
        for path in
            refused.iter().map(PathBuf::as_path).chain([Path::new("/dev/null"), Path::new("/dev/stdout")])
        {
            let refused = write(path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{}", path.display());
        }
        assert_eq!(fs::read_to_string(at("target")).unwrap(), "previous");
        assert_eq!(names(&root), ["in", "target"]);
    }

    #[test]
    fn failed_write_keeps_the_previous_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report");
        write(&file, "whole").unwrap();
        let failed = OutputFile::new(&file).write(|to| {
            to.write_all(b"part")?;
            Err(io::Error::other("no more"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read_to_string(&file).unwrap(), "whole");
        assert_eq!(names(folder.path()), ["report"]);
    }
}
