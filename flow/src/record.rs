//! Records of completed commands: a command runs again only if it, its inputs or its outputs have changed.
//!
//! The folder `.flow` next to the job file has a file for each command, with the key of the command and the digests of the
//! outputs. The key is a hash of the command and of the contents of its inputs. If the folder is removed, all commands run.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::RandomState},
    fs::{self, File, TryLockError},
    hash::BuildHasher as _,
    io,
    path::{Path, PathBuf},
};

use dataflow_framework::cli::Failure;
use serde::{Deserialize, Serialize};
use taskwork::lowlevel::OutputFile;

use crate::{
    object::{self, is_uri},
    plan::{Plan, Step},
};

/// The folder of the records.
pub(crate) const FOLDER: &str = ".flow";

/// The lock of a folder: one run at a time writes into it.
const LOCK: &str = "lock";

/// The token of a folder.
const TOKEN: &str = "token";

/// The folder of a job file that all nodes reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    /// The content of a file that the submitter has written, so that a node does not take a folder of its own for it.
    token: String,
}

impl Shared {
    /// Creates it on the machine of the submitter, which has locked the folder.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        let file = path.join(FOLDER).join(TOKEN);
        let mut token = fs::read_to_string(&file).unwrap_or_default();
        if token.is_empty() {
            token = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
            OutputFile::new(&file).attempt_of("token").write(|to| to.write_all(token.as_bytes()))?;
        }
        Ok(Self { path, token })
    }

    /// Checks that this node reaches the folder of the submitter.
    pub(crate) fn check(&self) -> io::Result<()> {
        let file = self.path.join(FOLDER).join(TOKEN);
        if fs::read_to_string(&file).is_ok_and(|found| found == self.token) {
            return Ok(());
        }
        let (file, folder) = (file.display(), self.path.display());
        Err(io::Error::other(format!(
            "{file} is not the file of the submitter: with --shared, each node has to reach {folder} at this path; mount it on this \
             node, or leave --shared out"
        )))
    }
}

/// The record of a completed command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    key: String,
    /// The digests of the outputs, by their paths.
    pub(crate) outputs: BTreeMap<String, String>,
    /// The versions of the outputs at URIs.
    #[serde(default)]
    pub(crate) versions: BTreeMap<String, Option<String>>,
}

impl Record {
    /// Creates the record of a command, with the digests of its inputs and outputs.
    pub(crate) fn new<'a>(
        shell: &[String],
        step: &Step,
        inputs: impl Iterator<Item = &'a str>,
        outputs: Vec<String>,
    ) -> Self {
        let outputs = step.outputs.iter().cloned().zip(outputs).collect();
        Self { key: key(shell, step, inputs), outputs, versions: BTreeMap::new() }
    }

    /// Writes the record into the folder of the job file, after the outputs.
    pub(crate) fn save(&self, folder: &Path, step: &Step) -> io::Result<()> {
        fs::create_dir_all(folder.join(FOLDER))?;
        let text = serde_json::to_vec(self)?;
        OutputFile::new(&place(folder, step)).attempt_of("record").write(|to| to.write_all(&text))
    }

    /// Reads the record of a command; `None` if there is none, or it is damaged.
    fn read(folder: &Path, step: &Step) -> Option<Self> {
        serde_json::from_slice(&fs::read(place(folder, step)).ok()?).ok()
    }
}

/// Returns the file of a record. No other command has the same first output.
fn place(folder: &Path, step: &Step) -> PathBuf {
    let name = blake3::hash(step.outputs[0].as_bytes()).to_hex();
    folder.join(FOLDER).join(format!("{}.json", &name[..32]))
}

/// Creates the file of the record, before the outputs: if the run ends between them, they are known as those of flow.
pub(crate) fn claim(folder: &Path, step: &Step) -> io::Result<()> {
    fs::create_dir_all(folder.join(FOLDER))?;
    File::options().create(true).append(true).open(place(folder, step)).map(|_| ())
}

/// Refuses to replace files without a record of flow.
pub(crate) fn refuse_overwriting(plan: &Plan, folder: &Path, runs: &[bool]) -> Result<(), String> {
    for (step, _) in plan.steps.iter().zip(runs).filter(|(_, runs)| **runs) {
        let objects: Vec<_> = step.outputs.iter().map(|path| &**path).filter(|path| is_uri(path)).collect();
        // A lookup is slow.
        let is_unknown = !place(folder, step).exists();
        let objects = if is_unknown { object::versions(&objects)? } else { HashMap::new() };
        let exists = |path: &&String| {
            objects
                .get(&***path)
                .map_or_else(|| folder.join(path).symlink_metadata().is_ok(), Option::is_some)
        };
        if !plan.kinds[step.kind].is_temporary
            && is_unknown
            && let Some(path) = step.outputs.iter().find(exists)
        {
            let why = format!("{} would replace {path}, which flow has not written", step.label);
            return Err(format!("{why}: move that file, or use --overwrite"));
        }
    }
    Ok(())
}

/// Returns the hash of everything on which the outputs of a command depend.
fn key<'a>(shell: &[String], step: &Step, inputs: impl Iterator<Item = &'a str>) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(&shell.join(" "));
    add(&step.command);
    add(&step.inputs.len().to_string());
    step.inputs.iter().zip(inputs).for_each(|(path, digest)| [path, digest].into_iter().for_each(&mut add));
    step.outputs.iter().for_each(|path| add(path));
    hasher.finalize().to_hex().to_string()
}

/// Returns the digest of the content of a file.
pub(crate) fn digest(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Locks the folder of a job file until the file is dropped.
pub(crate) fn lock(folder: &Path) -> Result<File, Failure> {
    let created =
        fs::create_dir_all(folder.join(FOLDER)).and_then(|()| File::create(folder.join(FOLDER).join(LOCK)));
    let file = created.map_err(|error| {
        Failure::usage(format!("{}: {error}; this folder has to be writable", folder.join(FOLDER).display()))
    })?;
    file.try_lock().map_err(|error| not_locked(folder, error))?;
    Ok(file)
}

fn not_locked(folder: &Path, error: TryLockError) -> Failure {
    let folder = folder.display();
    match error {
        TryLockError::WouldBlock => {
            Failure::usage(format!("another run of flow writes into {folder}: wait until it has completed"))
        }
        TryLockError::Error(error) => {
            let place = format!("{folder}/{FOLDER}/{LOCK} cannot be locked: {error}");
            Failure::failed(format!("{place}; use a file system that supports locks"))
        }
    }
}

/// The commands to run.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Whether each command of the plan has to run.
    pub(crate) runs: Vec<bool>,
    /// The existing files that these commands read.
    pub(crate) sources: BTreeMap<String, Origin>,
}

/// The state of an existing file.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The hash of its content; for an object that no command has written, its version.
    pub(crate) digest: String,
    /// The version of an object.
    pub(crate) version: Option<String>,
}

/// Selects the commands with missing or outdated outputs, and the readers of outputs with unknown content. The content of an output is known if the command has a record for its inputs: a deterministic
/// command that runs again writes the recorded content, a nondeterministic one may write another.
pub(crate) fn select(plan: &Plan, folder: &Path) -> Result<Selection, String> {
    let mut sources = HashMap::new();
    let (uris, paths): (Vec<_>, Vec<_>) = plan.sources().into_iter().partition(|path| is_uri(path));
    for (uri, version) in object::versions(&uris)? {
        sources.insert(uri, version.ok_or_else(|| format!("{uri}: there is no such object"))?);
    }
    for path in paths {
        let found = digest(&folder.join(path)).map_err(|error| format!("{path}: it cannot be read: {error}"));
        sources.insert(path, found?);
    }
    let records: Vec<_> = plan.steps.iter().map(|step| Record::read(folder, step)).collect();
    // Commands without a record run in any case.
    let recorded = plan.steps.iter().zip(&records).filter(|(_, record)| record.is_some());
    let written = recorded.flat_map(|(step, _)| step.outputs.iter().map(|path| &**path));
    let objects = object::versions(&written.filter(|path| is_uri(path)).collect::<Vec<_>>())?;
    let mut present: HashMap<&str, Option<String>> = HashMap::new();
    let mut runs: Vec<_> = plan.steps.iter().map(|step| plan.kinds[step.kind].prints).collect();
    loop {
        let before = runs.clone();
        let known = known(plan, &sources, &records, &mut runs);
        let (mut needed, mut made) = (HashSet::new(), HashSet::new());
        for ((step, record), runs) in plan.steps.iter().zip(&records).zip(&mut runs).rev() {
            let is_wanted = |path: &&String| !plan.kinds[step.kind].is_temporary || needed.contains(&***path);
            *runs = *runs
                || !step.outputs.iter().filter(is_wanted).all(|path| {
                    if is_uri(path) {
                        let found = objects.get(&**path).filter(|found| found.is_some());
                        return found.is_some()
                            && found == record.as_ref().and_then(|it| it.versions.get(path));
                    }
                    let found = present.entry(path).or_insert_with(|| digest(&folder.join(path)).ok());
                    found.is_some() && found.as_deref() == known.get(&**path).copied()
                });
            if *runs {
                needed.extend(step.inputs.iter().map(|path| &**path));
                made.extend(step.outputs.iter().map(|path| &**path));
            }
        }
        if runs == before {
            let sources = needed.difference(&made);
            let sources = sources.filter_map(|path| {
                let digest = (*known.get(path)?).to_owned();
                let version = || objects.get(path).cloned().flatten().or_else(|| Some(digest.clone()));
                let version = if is_uri(path) { version() } else { None };
                Some(((*path).to_owned(), Origin { digest, version }))
            });
            return Ok(Selection { sources: sources.collect(), runs });
        }
    }
}

/// Returns the digests that are known before the run, and adds the commands without a record for their inputs to those
/// that run.
fn known<'a>(
    plan: &'a Plan,
    sources: &'a HashMap<&str, String>,
    records: &'a [Option<Record>],
    runs: &mut [bool],
) -> HashMap<&'a str, &'a str> {
    let mut known: HashMap<_, _> = sources.iter().map(|(path, digest)| (*path, &**digest)).collect();
    for ((step, record), runs) in plan.steps.iter().zip(records).zip(runs) {
        let inputs: Option<Vec<_>> = step.inputs.iter().map(|path| known.get(&**path).copied()).collect();
        let is_current = |record: &&Record| {
            inputs.is_some_and(|inputs| record.key == key(&plan.shell, step, inputs.into_iter()))
        };
        let record = record.as_ref().filter(is_current);
        *runs |= record.is_none();
        if let Some(record) = record.filter(|_| !(*runs && plan.kinds[step.kind].options.nondeterministic)) {
            let outputs = step.outputs.iter();
            known.extend(outputs.filter_map(|path| Some((&**path, &**record.outputs.get(path)?))));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_another_run_differs_from_other_errors() {
        let folder = tempfile::tempdir().unwrap();
        let _first = lock(folder.path()).unwrap();
        let busy = lock(folder.path()).unwrap_err().to_string();
        assert!(busy.contains("another run of flow"), "{busy}");
        let other = TryLockError::Error(io::ErrorKind::Unsupported.into());
        let other = not_locked(folder.path(), other).to_string();
        assert!(other.contains(".flow/lock cannot be locked: unsupported"), "{other}");
    }
}
