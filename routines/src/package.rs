//! Packages of routines: folders with `routine.toml`, named by a digest of their content.

mod archive;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    ops::RangeInclusive,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use toml::Spanned;

use crate::{
    signature::{Parameters, Schema},
    template::Template,
    wire::EntryKind,
};

/// The name of the description of a package.
const DESCRIPTION: &str = "routine.toml";

/// The maximum size of the description, in bytes.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 10;

/// The maximum number of files of a package, and their maximum size together, in bytes.
const FILES_MAX: usize = 10_000;
const PACKAGE_BYTES_MAX: u64 = 1 << 30;

/// The maximum depth of folders in a package.
const DEPTH_MAX: usize = 32;

/// The maximum length of a name or version.
const NAME_BYTES_MAX: usize = 60;

/// The time between two states of a call by default, and its limits in seconds.
const CHECKPOINT: Duration = Duration::from_secs(30);
const CHECKPOINT_SECONDS: RangeInclusive<f64> = 0.1..=86_400.0;

/// The limits of the memory of a runtime, in MiB.
const MEMORY_MIB: RangeInclusive<u64> = 1..=1 << 30;

/// The maximum length of the text about a routine, in bytes, and its maximum number of tags.
const TEXT_BYTES_MAX: usize = 4 << 10;
const TAGS_MAX: usize = 16;

/// The program that runs the routines of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RuntimeKind {
    Python3,
    Node,
    Java,
    R,
    Octave,
    /// The entry is a command line.
    Command,
    /// A file of the package.
    Program,
}

/// A folder with a routine.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) folder: PathBuf,
    pub(crate) digest: String,
    pub(crate) description: Description,
    /// Paths relative to the folder, sorted.
    pub(crate) files: Vec<PathBuf>,
}

/// The content of `routine.toml`. Its signature is shown to users.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    #[serde(skip_serializing)]
    pub(crate) name: String,
    #[serde(skip_serializing)]
    pub(crate) version: String,
    #[serde(skip_serializing)]
    pub(crate) runtime: RuntimeKind,
    /// For users.
    #[serde(default, rename = "description")]
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// The module and the function or class, as in `model:run`; of a program its file and the routine.
    pub(crate) entry: String,
    #[serde(default)]
    pub(crate) kind: EntryKind,
    /// The maximum duration of a call, in seconds.
    timeout: Option<f64>,
    /// The maximum memory of a runtime, in MiB.
    memory: Option<u64>,
    /// The number of calls after which a runtime restarts.
    pub(crate) reuse: Option<u64>,
    /// The time between two states of a call, in seconds.
    checkpoint: Option<f64>,
    /// Whether a direct call is repeated after its node, or its runtime, was lost with it.
    #[serde(default)]
    pub(crate) idempotent: bool,
    /// Whether it combines a list of results to one, with the laws that `routines check` tests.
    #[serde(default)]
    pub(crate) reducer: bool,
    /// Without them, arguments are not checked.
    #[serde(rename(deserialize = "parameter"))]
    pub(crate) parameters: Option<Parameters>,
    pub(crate) result: Option<Schema>,
    #[serde(default, skip_serializing)]
    pub(crate) example: Vec<Spanned<Example>>,
}

/// A call that shows the use of a routine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Example {
    pub(crate) argument: Value,
    /// The expected result; without one, the call only has to succeed.
    pub(crate) result: Option<Value>,
}

/// The reasons for which a folder is not a package.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum PackageError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {error}", .path.display())]
    Description { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{}: {reason}", .path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error("the content of {} has changed: its digest is {found}", .path.display())]
    Changed { path: PathBuf, found: String },
}

impl Package {
    pub(crate) fn read(folder: &Path) -> Result<Self, PackageError> {
        let (description, _) = Description::read(folder)?;
        let mut files = Vec::new();
        list(folder, Path::new(""), &mut files)?;
        files.sort();
        if let Some(program) = description.program() {
            check_program(folder, Path::new(program), &files)?;
        }
        let failed = |error| PackageError::Io { path: folder.to_owned(), error };
        let folder = std::path::absolute(folder).map_err(failed)?;
        let digest = digest(&folder, &files)?;
        Ok(Self { folder, digest, description, files })
    }

    /// Returns the name with the version.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.description.name, self.description.version)
    }
}

impl Description {
    /// Reads the description of a package, without the other files. Returns it with its text.
    pub(crate) fn read(folder: &Path) -> Result<(Self, String), PackageError> {
        let path = folder.join(DESCRIPTION);
        let failed = |error| PackageError::Io { path: path.clone(), error };
        let mut text = String::new();
        let file = File::open(&path).map_err(failed)?;
        file.take(DESCRIPTION_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        let invalid = |reason: String| PackageError::Invalid { path: path.clone(), reason };
        if text.len() as u64 > DESCRIPTION_BYTES_MAX {
            return Err(invalid(format!("it has more than {DESCRIPTION_BYTES_MAX} bytes")));
        }
        Ok((Self::parse(&path, &text)?, text))
    }

    /// Parses the text of a description. The path is for messages.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, PackageError> {
        let description: Self = toml::from_str(text)
            .map_err(|error| PackageError::Description { path: path.to_owned(), error: Box::new(error) })?;
        let invalid = |reason: String| PackageError::Invalid { path: path.to_owned(), reason };
        description.check().map_err(invalid)?;
        Ok(description)
    }

    fn check(&self) -> Result<(), String> {
        for (field, text) in [("name", &self.name), ("version", &self.version)] {
            if !is_name(text) {
                return Err(format!(
                    "{field} = {text:?} must have 1 to {NAME_BYTES_MAX} letters, digits, `.`, `-` or `_`, the first \
                     of them a letter or digit"
                ));
            }
        }
        self.check_entry()?;
        if self.timeout.is_some_and(|seconds| !(0.001..=31_536_000.0).contains(&seconds)) {
            return Err("timeout must be a number of seconds from 0.001 to 31536000".to_owned());
        }
        if self.checkpoint.is_some_and(|seconds| !CHECKPOINT_SECONDS.contains(&seconds)) {
            let (least, most) = (CHECKPOINT_SECONDS.start(), CHECKPOINT_SECONDS.end());
            return Err(format!("checkpoint must be a number of seconds from {least} to {most}"));
        }
        if self.memory.is_some_and(|mib| !MEMORY_MIB.contains(&mib)) {
            let (least, most) = (MEMORY_MIB.start(), MEMORY_MIB.end());
            return Err(format!("memory must be a number of MiB from {least} to {most}"));
        }
        if self.kind == EntryKind::Search
            && (self.timeout.is_some() || self.reuse.is_some() || self.checkpoint.is_some())
        {
            return Err("a search has no timeout, reuse or checkpoint, which belong to calls".to_owned());
        }
        if self.kind == EntryKind::Search && self.reducer {
            return Err("a search is no reducer: that is a property of functions".to_owned());
        }
        if self.kind == EntryKind::Search && self.idempotent {
            return Err("a search is not idempotent: that is a property of calls".to_owned());
        }
        if self.reuse == Some(0) {
            return Err("reuse must be a number of calls from 1".to_owned());
        }
        if self.kind == EntryKind::Search && self.result.is_some() {
            return Err("a search has no schema of the result: remove result".to_owned());
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(format!("description must have at most {TEXT_BYTES_MAX} bytes"));
        }
        if self.tags.len() > TAGS_MAX || !self.tags.iter().all(|tag| is_name(tag)) {
            return Err(format!("tags must be at most {TAGS_MAX} words of letters, digits, `.`, `-` or `_`"));
        }
        Ok(())
    }

    fn check_entry(&self) -> Result<(), String> {
        if self.runtime == RuntimeKind::Command {
            if self.kind == EntryKind::Search {
                return Err("kind must be \"function\": a command line has no states".to_owned());
            }
            let template = Template::parse(&self.entry);
            return template.map(drop).map_err(|reason| format!("entry = {:?}: {reason}", self.entry));
        }
        let is_part = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        };
        let is_file = |file: &str| file.split('/').all(|part| !part.is_empty() && !part.starts_with('.'));
        let (is_first, parts): (&dyn Fn(&str) -> bool, _) = match self.runtime {
            RuntimeKind::Program => {
                (&is_file, "a file of the package and a routine in it, as in \"bin/model:run\"")
            }
            _ => (&is_part, "a module and a function, as in \"model:run\""),
        };
        if !self.entry.split_once(':').is_some_and(|(first, name)| is_first(first) && is_part(name)) {
            return Err(format!("entry = {:?} must be {parts}", self.entry));
        }
        Ok(())
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs_f64)
    }

    /// Returns the maximum memory of a runtime, in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.memory.map(|mib| mib << 20)
    }

    /// Returns the file of the program that runs the routine; `None` if nodes have it.
    pub(crate) fn program(&self) -> Option<&str> {
        let (file, _) = self.entry.split_once(':').filter(|_| self.runtime == RuntimeKind::Program)?;
        Some(file)
    }

    /// Returns the time between two states of a call.
    pub(crate) fn checkpoint(&self) -> Duration {
        self.checkpoint.map_or(CHECKPOINT, Duration::from_secs_f64)
    }
}

/// Returns whether a text is a valid name or version.
pub(crate) fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_inner)
}

/// Lists the files of a folder. Hidden files, and those that Python derives from others, are not part of a package.
fn list(folder: &Path, within: &Path, files: &mut Vec<PathBuf>) -> Result<(), PackageError> {
    let path = folder.join(within);
    let failed = |error| PackageError::Io { path: path.clone(), error };
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let invalid =
            |reason: &str| Err(PackageError::Invalid { path: entry.path(), reason: reason.to_owned() });
        let name = entry.file_name();
        let Some(name) = name.to_str() else { return invalid("its name is not UTF-8") };
        if name.starts_with('.') || name == "__pycache__" {
            continue;
        }
        let inner = within.join(name);
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            if inner.components().count() >= DEPTH_MAX {
                return invalid("it is nested too deep in the package");
            }
            list(folder, &inner, files)?;
        } else if kind.is_file() {
            if files.len() >= FILES_MAX {
                return invalid("the package has more than 10,000 files");
            }
            files.push(inner);
        } else {
            return invalid("a package contains only files and folders, no links");
        }
    }
    Ok(())
}

/// Checks that nodes can start the program of a package.
fn check_program(folder: &Path, program: &Path, files: &[PathBuf]) -> Result<(), PackageError> {
    let path = folder.join(program);
    let is_executable = |metadata: fs::Metadata| metadata.permissions().mode() & 0o100 != 0;
    let reason = if files.iter().all(|file| file != program) {
        "no file of the package"
    } else if fs::metadata(&path).is_ok_and(is_executable) {
        return Ok(());
    } else {
        "not executable"
    };
    let reason = format!("entry names this program, which is {reason}");
    Err(PackageError::Invalid { path, reason })
}

/// Returns the digest of files: of their paths, executable flags and contents.
fn digest(folder: &Path, files: &[PathBuf]) -> Result<String, PackageError> {
    let (mut hasher, mut left) = (blake3::Hasher::new(), PACKAGE_BYTES_MAX);
    for file in files {
        let path = folder.join(file);
        let failed = |error| PackageError::Io { path: path.clone(), error };
        let mut content = File::open(&path).map_err(failed)?;
        let is_executable = content.metadata().map_err(failed)?.permissions().mode() & 0o100 != 0;
        let name = file.as_os_str().as_encoded_bytes();
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name).update(&[u8::from(is_executable)]);
        let mut inner = blake3::Hasher::new();
        let bytes = io::copy(&mut content.by_ref().take(left + 1), &mut inner).map_err(failed)?;
        left = left.checked_sub(bytes).ok_or_else(|| PackageError::Invalid {
            path: folder.to_owned(),
            reason: format!("the package has more than {PACKAGE_BYTES_MAX} bytes"),
        })?;
        hasher.update(inner.finalize().as_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::{TempDir, tempdir};

    use super::*;

    const VALID: &str = "name = 'pi'\nversion = '1.0'\nruntime = 'python3'\nentry = 'pi:run'\n";

    fn folder(description: &str) -> TempDir {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join(DESCRIPTION), description).unwrap();
        fs::write(folder.path().join("pi.py"), "def run(n): return n\n").unwrap();
        folder
    }

    fn refused(folder: &TempDir) -> String {
        Package::read(folder.path()).unwrap_err().to_string()
    }

    #[test]
    fn digest_depends_on_content_only() {
        let (one, two) = (folder(VALID), folder(VALID));
        fs::create_dir(two.path().join("__pycache__")).unwrap();
        fs::write(two.path().join("__pycache__/pi.pyc"), "x").unwrap();
        fs::write(two.path().join(".hidden"), "x").unwrap();
        let digest = |of: &TempDir| Package::read(of.path()).unwrap().digest;
        assert_eq!(digest(&one), digest(&two));
        let before = digest(&one);
        fs::set_permissions(one.path().join("pi.py"), fs::Permissions::from_mode(0o755)).unwrap();
        let executable = digest(&one);
        fs::rename(two.path().join("pi.py"), two.path().join("tau.py")).unwrap();
        assert!(executable != before && digest(&two) != before);
    }

    #[test]
    fn invalid_descriptions_are_refused_with_their_field() {
        for (from, to, field) in [
            ("'pi'", "'../pi'", "name"),
            ("'pi'", "''", "name"),
            ("'1.0'", "'1/0'", "version"),
            ("'python3'", "'cobol'", "runtime"),
            ("'pi:run'", "'pi'", "entry"),
            ("'pi:run'", "'pi:run()'", "entry"),
            ("entry", "entyr", "entyr"),
            ("entry", "tags = ['a b']\nentry", "tags"),
        ] {
            let text = refused(&folder(&VALID.replace(from, to)));
            assert!(text.contains(field), "{text}");
        }
        let program = VALID.replace("python3", "program");
        for (entry, reason) in [
            ("..:run", "entry = \"..:run\" must be a file of the package and a routine"),
            ("/bin/sh:run", "entry = \"/bin/sh:run\" must be"),
            ("bin/../pi:run", "entry = \"bin/../pi:run\" must be"),
            ("pi", "entry = \"pi\" must be"),
            ("my-prog:run", "my-prog: entry names this program, which is no file of the package"),
            ("bin/pi:run", "bin/pi: entry names this program, which is no file of the package"),
            ("pi.py:run", "pi.py: entry names this program, which is not executable"),
        ] {
            let text = refused(&folder(&program.replace("pi:run", entry)));
            assert!(text.contains(reason), "{text}");
        }
        for (line, field) in [
            ("timeout = 0", "timeout"),
            ("reuse = 0", "reuse"),
            ("timeout = nan", "timeout"),
            ("checkpoint = 0", "checkpoint"),
        ] {
            assert!(refused(&folder(&format!("{VALID}{line}\n"))).contains(field), "{line}");
        }
        let huge = format!("{VALID}# {}", "x".repeat(usize::try_from(DESCRIPTION_BYTES_MAX).unwrap()));
        assert!(refused(&folder(&huge)).contains("more than 65536 bytes"));
    }

    #[test]
    fn program_in_folder_of_package_is_accepted() {
        let text = VALID.replace("python3", "program").replace("pi:run", "bin/my-pi:run");
        let folder = folder(&text);
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("my-pi"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(bin.join("my-pi"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Package::read(folder.path()).unwrap().description.program(), Some("bin/my-pi"));
    }

    #[test]
    fn links_in_package_are_refused() {
        let folder = folder(VALID);
        symlink("/etc/passwd", folder.path().join("data")).unwrap();
        assert!(refused(&folder).contains("no links"));
    }
}
