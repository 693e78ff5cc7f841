//! `cargo xtask release`: builds the artefacts for users from a commit.
//!
//! | file | content |
//! |---|---|
//! | `origin.rs` | the commit and its time |
//! | `project.rs` | the programs according to cargo |
//! | `build.rs` | the programs, linked statically and reproducibly |
//! | `manual.rs` | their completions and man pages |
//! | `licences.rs` | the licences of their components |
//! | `files.rs`, `tarball.rs` | archives of files |
//! | `deb.rs`, `packaged.rs` | Debian packages and their content |
//! | `artefacts.rs` | all artefacts under the names of a release |
//! | `trial.rs` | a trial run and installation of the artefacts (`--try`) |
//!
//! All artefacts are made in memory and then written at once, so an archive does not depend on files from earlier
//! builds.

mod artefacts;
mod build;
mod deb;
mod files;
mod licences;
mod manual;
mod origin;
mod packaged;
mod project;
mod tarball;
mod trial;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use self::{
    artefacts::Parts,
    files::Files,
    origin::{Origin, git},
    project::Project,
};
use crate::workspace;

/// The options of the release.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder for the artefacts; one that was made before is replaced [default: release-artefacts in the build
    /// folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build everything a second time, from a copy in another folder, and compare bit by bit
    #[arg(long)]
    check: bool,
    /// Run the artefacts, and install the packages in a temporary copy of this system (as root)
    #[arg(long = "try")]
    trial: bool,
    /// Allow uncommitted changes; the programs then report that in `--version`
    #[arg(long)]
    allow_dirty: bool,
    /// The maintainer of the Debian packages
    #[arg(long, value_name = "NAME <ADDRESS>", value_parser = maintainer, default_value = DEFAULT_MAINTAINER)]
    maintainer: String,
}

/// The maintainer of locally built packages: an address that receives no mail.
const DEFAULT_MAINTAINER: &str = "Local build of taskwork <taskwork@taskwork.invalid>";

/// The file with the checksums of all others.
const SUMS: &str = "SHA256SUMS";

/// The results of a build in one folder.
struct Made {
    version: String,
    programs: Files,
    artefacts: Files,
}

/// Builds a release.
///
/// # Errors
/// If a step fails, the second build differs, or an artefact does not work.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let origin = Origin::find(arguments.allow_dirty)?;
    let source = workspace::root();
    let place = Project::read(&source)?.target;
    let out = arguments.out.clone().unwrap_or_else(|| place.join("release-artefacts"));
    ensure_free(&out)?;
    let work = place.join("artefacts");
    let (one, other) = (work.join("one"), work.join("other"));
    // Both copies are made before the first build, which takes minutes in which a file may be changed.
    copy(&source, &one.join("source"))?;
    if arguments.check {
        copy(&one.join("source"), &other.join("source"))?;
    }

    println!("building the programs of commit {}", origin.commit);
    let first = make(&one, &origin, &arguments.maintainer)?;
    // One from before stays until this one is known to be good.
    let new = write(&first.artefacts, &out)?;
    if arguments.trial {
        trial::run(&new, &first.version, &origin)?;
    }
    if arguments.check {
        println!("building them again in {}", other.display());
        let second = make(&other, &origin, &arguments.maintainer)?;
        // The programs first: a difference between archives would be less specific.
        ensure_same(&first.programs, &second.programs)?;
        ensure_same(&first.artefacts, &second.artefacts)?;
        remove(&other)?;
        println!("both builds are the same, bit by bit");
    }
    replace(&out, &new)?;
    println!("{}", table(&first.artefacts, &out));
    Ok(())
}

/// Builds the source in the folder `work/source`, in `work/target`.
fn make(work: &Path, origin: &Origin, maintainer: &str) -> Result<Made> {
    let started = Instant::now();
    let source = &work.join("source");
    let project = Project::read(source)?;
    let built = build::build(source, &work.join("target"), &project, origin)?;
    println!("{} programs after {:.0} s", project.programs.len(), started.elapsed().as_secs_f64());
    let artefacts = Parts::gather(source, &project, &built, origin, maintainer)?.artefacts()?;
    Ok(Made { version: project.version, programs: built.programs, artefacts })
}

fn ensure_same(first: &Files, second: &Files) -> Result<()> {
    let differences = first.differences(second).join(", ");
    ensure!(
        differences.is_empty(),
        "the same source gave two different results in two folders: {differences}"
    );
    Ok(())
}

/// Copies the source: of a clone the files that git knows or would add, so that nothing else gets into a release. They
/// get new times: cargo compares times, and would take a file for built that is older than the last release and came
/// from elsewhere.
fn copy(source: &Path, place: &Path) -> Result<()> {
    let mut names = Vec::new();
    if source.join(".git").exists() {
        let listed = git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        names.extend(listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned));
    } else {
        list(source, "", &mut names).with_context(|| format!("{} cannot be read", source.display()))?;
    }
    remove(place)?;
    for name in names {
        let (from, to) = (source.join(&name), place.join(&name));
        // A file that was removed, but not in a commit.
        if !from.exists() {
            continue;
        }
        let copied = || {
            fs::create_dir_all(to.parent().unwrap_or(place))?;
            fs::copy(&from, &to)
        };
        copied().with_context(|| format!("{} cannot be copied", from.display()))?;
    }
    Ok(())
}

/// Lists the files of a source folder, without build results.
fn list(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_file() {
            names.push(name);
        } else if name != "target" {
            list(&entry.path(), &format!("{name}/"), names)?;
        }
    }
    Ok(())
}

/// Checks that the folder can be replaced: it has a name, and neither it nor the one next to it contains files of
/// the user.
fn ensure_free(out: &Path) -> Result<()> {
    for folder in [out, &beside(out)?] {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => Err(error),
        };
        let entries = entries.with_context(|| format!("{} cannot be written to", folder.display()))?;
        let sums = fs::read_to_string(folder.join(SUMS)).unwrap_or_default();
        let names = sums.lines().filter_map(|line| Some(line.split_once("  ")?.1));
        let known: BTreeSet<_> = names.chain((!sums.is_empty()).then_some(SUMS)).collect();
        let other = entries.iter().map(fs::DirEntry::file_name).find(|name| {
            let name = name.to_string_lossy();
            !known.contains(&*name)
        });
        if let Some(other) = other {
            bail!(
                "{} has {}, which is not of a release: name an empty folder, or a new one",
                folder.display(),
                other.display()
            );
        }
    }
    Ok(())
}

/// Returns the folder for artefacts that are not known to be good.
fn beside(out: &Path) -> Result<PathBuf> {
    let mut name = out
        .file_name()
        .with_context(|| format!("{} names no folder that could be replaced", out.display()))?
        .to_owned();
    name.push(".new");
    Ok(out.with_file_name(name))
}

/// Writes the artefacts and their checksums next to the folder, and returns the path.
fn write(artefacts: &Files, out: &Path) -> Result<PathBuf> {
    let new = beside(out)?;
    remove(&new)?;
    artefacts.write(&new)?;
    let mut sum = Command::new("sha256sum");
    sum.current_dir(&new).arg("--").args(artefacts.iter().map(|(name, _)| name));
    let sums = sum.output().context("cannot start sha256sum")?;
    ensure!(sums.status.success(), "{sum:?}: {}", sums.status);
    fs::write(new.join(SUMS), sums.stdout).with_context(|| format!("{SUMS} cannot be written"))?;
    Ok(new)
}

/// Replaces the previous artefacts by the new ones: all, or none.
fn replace(out: &Path, new: &Path) -> Result<()> {
    remove(out)?;
    fs::rename(new, out).with_context(|| format!("{} cannot be written", out.display()))
}

/// Removes a folder, if there is one.
fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    Ok(())
}

fn table(artefacts: &Files, out: &Path) -> String {
    let width = artefacts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut table = "\n".to_owned();
    for (name, file) in artefacts.iter() {
        let _infallible = writeln!(table, "  {name:width$}  {:9} KiB", file.bytes.len().div_ceil(1024));
    }
    table + &out.display().to_string()
}

/// Reads the name and the address of a maintainer.
fn maintainer(text: &str) -> Result<String, String> {
    let parts = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
    let is_good = parts.is_some_and(|(name, address)| {
        let is_word = |c: char| !c.is_whitespace() && !c.is_control() && !"<>".contains(c);
        !name.trim().is_empty()
            && !name.contains(|c: char| c.is_control() || "<>,".contains(c))
            && address.contains('@')
            && address.chars().all(is_word)
    });
    is_good
        .then(|| text.to_owned())
        .ok_or_else(|| "it takes a name and an address: A Name <name@example.org>".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> Files {
        let mut files = Files::default();
        files.add(name, "1").unwrap();
        files
    }

    #[test]
    fn release_replaces_only_previous_release() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("deep/out");
        ensure_free(&out).unwrap();
        replace(&out, &write(&files("tsp_1.deb"), &out).unwrap()).unwrap();
        ensure_free(&out).unwrap();
        let new = write(&files("tsp_2.deb"), &out).unwrap();
        assert!(out.join("tsp_1.deb").is_file(), "the new one is not known to be good");
        ensure_free(&out).unwrap();
        replace(&out, &new).unwrap();
        let sums = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  tsp_2.deb\n";
        assert_eq!(fs::read_to_string(out.join(SUMS)).unwrap(), sums);
        assert!(!out.join("tsp_1.deb").exists());
        assert_eq!(fs::read_dir(out.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        // Downloads often have a file of this name.
        fs::write(out.join("thesis.pdf"), "").unwrap();
        assert!(ensure_free(&out).unwrap_err().to_string().contains("thesis.pdf, which is not of a release"));
        fs::remove_file(out.join("thesis.pdf")).unwrap();
        fs::remove_file(out.join(SUMS)).unwrap();
        assert!(ensure_free(&out).unwrap_err().to_string().contains("not of a release"));
        for nameless in [".", "..", "/"] {
            assert!(ensure_free(Path::new(nameless)).is_err(), "{nameless}");
        }
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(ensure_free(&file).is_err());
    }

    #[test]
    fn maintainer_requires_name_and_address() {
        assert!(maintainer(DEFAULT_MAINTAINER).is_ok() && maintainer("A B <a@b.example>").is_ok());
        for wrong in [
            "",
            "A",
            "a@b.example",
            "A <a>",
            "A <a@b",
            " <a@b>",
            "A\nDepends: x <a@b>",
            "A <a@b>\nX: <c@d>",
            "A, B <a@b>",
            "A <a b@c>",
        ] {
            assert!(maintainer(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn table_has_line_per_artefact() {
        let mut files = files("tsp_1.deb");
        files.add("tsp_1.tar.gz", vec![0; 2000]).unwrap();
        let table = table(&files, Path::new("/out"));
        assert_eq!(table, "\n  tsp_1.deb             1 KiB\n  tsp_1.tar.gz          2 KiB\n/out");
    }

    #[test]
    fn copy_includes_new_files_but_not_build_results() {
        let folder = tempfile::tempdir().unwrap();
        let root = workspace::root();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        copy(&root, &one).unwrap();
        for name in ["Cargo.lock", "xtask/src/main.rs", ".cargo/config.toml"] {
            let time = |folder: &Path| folder.join(name).metadata().unwrap().modified().unwrap();
            assert!(time(&one) > time(&root), "{name} could be taken for built");
        }
        assert!(!one.join(".git").exists() && !one.join("target").exists());
        // The copy is no clone.
        fs::create_dir(one.join("target")).unwrap();
        fs::write(one.join("target/built"), "").unwrap();
        copy(&one, &other).unwrap();
        fs::remove_dir_all(one.join("target")).unwrap();
        assert_eq!(Files::of_folder(&other).unwrap(), Files::of_folder(&one).unwrap());
    }
}
