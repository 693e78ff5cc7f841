//! The files of an archive or a folder, in the order of their names.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};

/// Files by their names. A name is a path below the top of the archive, with `/` between its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, File>);

/// One file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// The permissions of a file, reduced to those that archives keep; the others depend on the
/// `umask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everybody may read it.
    Data,
    /// Everybody may read and run it.
    Program,
}

impl Kind {
    /// Returns the permissions.
    pub(crate) fn mode(self) -> u32 {
        match self {
            Self::Data => 0o644,
            Self::Program => 0o755,
        }
    }
}

// Without the content, which can be of many megabytes.
impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("File").field("kind", &self.kind).field("bytes", &self.bytes.len()).finish()
    }
}

impl Files {
    /// Adds a file that everybody may read.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.put(name, Kind::Data, bytes.into())
    }

    /// Adds a program.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn add_program(&mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.put(name, Kind::Program, bytes.into())
    }

    /// Adds a file.
    ///
    /// # Errors
    /// If the name leaves the folder, is not plain, or is taken by another file.
    pub(crate) fn put(&mut self, name: &str, kind: Kind, bytes: Vec<u8>) -> Result<()> {
        ensure!(
            is_plain(name),
            "{name:?} cannot be the name of a file in an archive: it must stay in its folder"
        );
        match self.0.entry(name.to_owned()) {
            Entry::Occupied(_) => bail!("{name} is there twice"),
            Entry::Vacant(free) => free.insert(File { kind, bytes }),
        };
        Ok(())
    }

    /// Adds another set of files below a folder.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    pub(crate) fn add_all(&mut self, folder: &str, files: Self) -> Result<()> {
        files
            .0
            .into_iter()
            .try_for_each(|(name, file)| self.put(&format!("{folder}/{name}"), file.kind, file.bytes))
    }

    /// Reads all files of a folder.
    ///
    /// # Errors
    /// If one cannot be read, or is neither a file nor a folder.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self> {
        let mut files = Self::default();
        files.read(folder, "").with_context(|| format!("{} cannot be read", folder.display()))?;
        Ok(files)
    }

    fn read(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let (path, metadata) = (entry.path(), entry.metadata()?);
            if metadata.is_dir() {
                self.read(&path, &format!("{name}/"))?;
            } else {
                ensure!(metadata.is_file(), "{name} is neither a file nor a folder");
                let is_program = metadata.permissions().mode() & 0o100 != 0;
                let kind = if is_program { Kind::Program } else { Kind::Data };
                self.put(&name, kind, fs::read(&path).with_context(|| name.clone())?)?;
            }
        }
        Ok(())
    }

    /// Writes all files below a folder, which is created if it is missing.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        for (name, file) in &self.0 {
            let path = folder.join(name);
            let written = || {
                fs::create_dir_all(path.parent().unwrap_or(folder))?;
                fs::write(&path, &file.bytes)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(file.kind.mode()))
            };
            written().with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(())
    }

    /// Returns the files in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(name, file)| (name.as_str(), file))
    }

    /// Returns a file.
    pub(crate) fn get(&self, name: &str) -> Option<&File> {
        self.0.get(name)
    }

    /// Returns the names of the files that differ from another set, or are in one of the two only.
    pub(crate) fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let names: BTreeSet<_> = self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        names.into_iter().filter(|name| self.get(name) != other.get(name)).collect()
    }

    /// Returns the bytes of all files together.
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().map(|file| file.bytes.len()).sum()
    }
}

/// Returns whether a name is a path that stays below the folder in which it is unpacked.
fn is_plain(name: &str) -> bool {
    let is_plain =
        |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(|c| c.is_control() || c == '\\');
    name.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_leaves_folder_is_refused() {
        let mut files = Files::default();
        for name in
            ["", "/etc/passwd", "../tsp", "bin/../../tsp", "bin/", "./tsp", "a//b", "a\\b", "a\nb", "a\0"]
        {
            let error = files.add(name, "").unwrap_err().to_string();
            assert!(error.contains("must stay in its folder"), "{name:?}: {error}");
        }
        assert_eq!(files, Files::default());
        files.add("..a/b..", "").unwrap();
    }

    #[test]
    fn duplicate_name_is_an_error() {
        let mut files = Files::default();
        files.add("a", "1").unwrap();
        assert_eq!(files.add_program("a", "2").unwrap_err().to_string(), "a is there twice");
        assert_eq!(files.get("a").unwrap().bytes, b"1");
        let mut other = Files::default();
        other.add("a", "3").unwrap();
        files.add_all("b", other).unwrap();
        assert_eq!(files.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b/a"]);
        assert_eq!(files.bytes(), 2);
    }

    #[test]
    fn every_difference_is_named() {
        let files = |contents: &[(&str, &str)]| {
            let mut files = Files::default();
            for (name, text) in contents {
                files.add(name, *text).unwrap();
            }
            files
        };
        let first = files(&[("a", "same"), ("b", "1"), ("c", "only"), ("e", "")]);
        let mut second = files(&[("a", "same"), ("b", "2"), ("d", "only")]);
        second.add_program("e", "").unwrap();
        assert_eq!(first.differences(&second), ["b", "c", "d", "e"]);
        assert_eq!(first.differences(&first), [""; 0]);
    }

    #[test]
    fn written_files_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::default();
        files.add("share/doc/a", "text").unwrap();
        files.add_program("bin/b", [0, 255]).unwrap();
        files.write(folder.path()).unwrap();
        assert_eq!(Files::of_folder(folder.path()).unwrap(), files);
        std::os::unix::fs::symlink("/etc", folder.path().join("bin/link")).unwrap();
        let error = format!("{:#}", Files::of_folder(folder.path()).unwrap_err());
        assert!(error.contains("bin/link is neither a file nor a folder"), "{error}");
        assert!(Files::of_folder(&folder.path().join("none")).is_err());
    }
}
