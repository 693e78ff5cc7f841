//! The directory in which an external program runs.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use super::{File, is_executable, refused, told, work_dir::Folder};

/// The directory in which an external program runs, with its input files.
pub(super) struct Sandbox<'a> {
    folder: Folder,
    /// The names in use in the directory.
    names: BTreeSet<String>,
    /// The files to which the directory has links.
    linked: Vec<&'a File>,
}

/// The access of a program to an input file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// The program changes a copy.
    Change,
}

impl<'a> Sandbox<'a> {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { folder: Folder::new()?, names: BTreeSet::new(), linked: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file into the directory, and returns its name for the program.
    pub(super) fn put(&mut self, file: &'a File, access: Access) -> io::Result<OsString> {
        let name = if self.names.insert(file.name().to_owned()) {
            // A program would take `-name` for an option.
            let before = if file.name().starts_with('-') { "./" } else { "" };
            format!("{before}{}", file.name())
        } else {
            // Two files may have the same name.
            let directory = self.directory()?;
            format!("{directory}/{}", file.name())
        };
        self.provide(file, &name, access)?;
        Ok(name.into())
    }

    /// Puts a file at a path in the directory, for reading.
    pub(super) fn put_at(&mut self, path: &str, file: &'a File) -> io::Result<()> {
        self.create_folder_of(path)?;
        self.names.insert(path.to_owned());
        self.provide(file, path, Access::Read)
    }

    /// Links a file, or copies it if the program may change it or could change the original through a link.
    fn provide(&mut self, file: &'a File, path: &str, access: Access) -> io::Result<()> {
        let to = self.path().join(path);
        // A copy would be written through a link to the first input.
        if to.symlink_metadata().is_ok() {
            return Err(refused(format!("two inputs of a program are at `{path}`")));
        }
        // Nothing must appear under the name of a missing file.
        let metadata = file.metadata()?;
        if access == Access::Read && file.link(&to) {
            self.linked.push(file);
            return Ok(());
        }
        let mode = if access == Access::Read { 0o400 } else { 0o600 };
        let mode = if is_executable(&metadata) { mode | 0o100 } else { mode };
        let copied =
            fs::copy(file.path(), &to).and_then(|_| fs::set_permissions(&to, Permissions::from_mode(mode)));
        copied.map_err(|error| told(file.path(), &format!("it cannot be copied to {path}"), &error))
    }

    /// Returns a linked file that the program has changed nevertheless.
    pub(super) fn changed(&self) -> Option<&'a File> {
        self.linked.iter().copied().find(|file| !file.is_unchanged())
    }

    /// Creates the folders of a path in the directory. Arguments do not get their names.
    pub(super) fn create_folder_of(&mut self, path: &str) -> io::Result<()> {
        let Some((folder, _)) = path.rsplit_once('/') else { return Ok(()) };
        self.names.extend(path.split('/').next().map(str::to_owned));
        let folder = self.path().join(folder);
        fs::create_dir_all(&folder).map_err(|error| told(&folder, "it cannot be created", &error))
    }

    /// Creates a directory, and returns its name.
    fn directory(&mut self) -> io::Result<String> {
        let mut number = 2_u64;
        while self.names.contains(&number.to_string()) {
            number += 1;
        }
        let name = number.to_string();
        let path = self.path().join(&name);
        fs::create_dir(&path).map_err(|error| told(&path, "it cannot be created", &error))?;
        self.names.insert(name.clone());
        Ok(name)
    }
}
