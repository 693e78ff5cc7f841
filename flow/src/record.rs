//! Records of completed commands: a command runs again only if it, its inputs or its outputs have changed.
//!
//! The folder `.flow` next to the job file has a file for each command, with the key of the command and the digests of the
//! outputs. The key is a hash of the command and of the contents of its inputs. If the folder is removed, all commands run.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use taskwork::OutputFile;

use crate::plan::{Plan, Step};

/// The folder of the records.
pub(crate) const FOLDER: &str = ".flow";

/// The lock of a folder: one run at a time writes into it.
const LOCK: &str = "lock";

/// The record of a completed command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    key: String,
    /// The digests of the outputs, by their paths.
    pub(crate) outputs: BTreeMap<String, String>,
}

impl Record {
    /// Creates the record of a command, with the digests of its inputs and outputs.
    pub(crate) fn new<'a>(
        shell: &[String],
        step: &Step,
        inputs: impl Iterator<Item = &'a str>,
        outputs: Vec<String>,
    ) -> Self {
        Self { key: key(shell, step, inputs), outputs: step.outputs.iter().cloned().zip(outputs).collect() }
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

/// Returns the digest of the content of a file, and of whether it is executable.
pub(crate) fn digest(path: &Path) -> io::Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut file = File::open(path)?;
    let is_executable = file.metadata()?.permissions().mode() & 0o100 != 0;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[u8::from(is_executable)]);
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Locks the folder of a job file until the file is dropped.
pub(crate) fn lock(folder: &Path) -> Result<File, String> {
    let path = folder.join(FOLDER).join(LOCK);
    let cannot = |error: io::Error| {
        format!(
            "{}: it cannot be created: {error}; the folder of the job file has to be writable",
            path.display()
        )
    };
    fs::create_dir_all(folder.join(FOLDER)).map_err(cannot)?;
    let file = File::create(&path).map_err(cannot)?;
    file.try_lock().map_err(|_| {
        format!("another run of flow writes into {}: wait until it has completed", folder.display())
    })?;
    Ok(file)
}

/// The commands to run.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Whether each command of the plan has to run.
    pub(crate) runs: Vec<bool>,
    /// The digests of the existing files that these commands read.
    pub(crate) sources: BTreeMap<String, String>,
}

/// Selects the commands whose outputs are missing or are not those of their current inputs.
pub(crate) fn select(plan: &Plan, folder: &Path) -> Result<Selection, String> {
    let mut on_disk: HashMap<&str, Option<String>> = HashMap::new();
    for path in plan.sources() {
        let found =
            digest(&folder.join(path)).map_err(|error| format!("{path}: it cannot be read: {error}"))?;
        on_disk.insert(path, Some(found));
    }
    // The digests of files as far as they are known before the run.
    let mut known = on_disk.clone();
    let mut records = Vec::new();
    for step in &plan.steps {
        let inputs: Option<Vec<_>> = step.inputs.iter().map(|path| known.get(&**path)?.as_deref()).collect();
        let record = inputs.and_then(|inputs| {
            let key = key(&plan.shell, step, inputs.into_iter());
            Record::read(folder, step).filter(|record| record.key == key)
        });
        for path in &step.outputs {
            known.insert(path, record.as_ref().and_then(|record| record.outputs.get(path).cloned()));
        }
        records.push(record);
    }
    let (mut runs, mut needed) = (vec![false; plan.steps.len()], HashSet::new());
    for (number, step) in plan.steps.iter().enumerate().rev() {
        let is_temporary = plan.kinds[step.kind].is_temporary;
        let is_present = |path: &String| {
            let found = digest(&folder.join(path)).ok();
            found.is_some() && found.as_deref() == known.get(&**path).and_then(Option::as_deref)
        };
        let wanted = |path: &&String| !is_temporary || needed.contains(&***path);
        if records[number].is_none() || !step.outputs.iter().filter(wanted).all(is_present) {
            runs[number] = true;
            needed.extend(step.inputs.iter().map(|path| &**path));
        }
    }
    let made: HashSet<&str> = plan
        .steps
        .iter()
        .zip(&runs)
        .filter(|(_, runs)| **runs)
        .flat_map(|(step, _)| &step.outputs)
        .map(|path| &**path)
        .collect();
    let read = needed.into_iter().filter(|path| !made.contains(path));
    let sources = read.map(|path| (path.to_owned(), known.get(path).cloned().flatten().unwrap_or_default()));
    Ok(Selection { sources: sources.collect(), runs })
}
