//! `cargo xtask release`: builds the artefacts for users from a commit, with the tools of the field.
//!
//! | file | content |
//! |---|---|
//! | `origin.rs` | the commit, its time and its source |
//! | `project.rs` | the programs according to cargo |
//! | `build.rs` | the static programs (cargo-auditable) |
//! | `stage.rs` | their files, and the archives and packages of them (cargo-about, tar, cargo-deb, cargo-generate-rpm) |
//! | `trial.sh` | a trial run and installation of the artefacts (`--try`) |

mod build;
#[cfg(test)]
mod install_tests;
mod origin;
mod project;
mod stage;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use self::{build::Machine, origin::Origin, project::Project, stage::Stage};
use crate::{
    install,
    step::{self, Step},
    workspace,
};

/// The options of the release.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder for the artefacts, which must be empty or new [default: release-artefacts in the build folder, which is
    /// replaced]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The machines
    #[arg(long, value_enum, value_delimiter = ',', default_value = "x86_64,aarch64")]
    machine: Vec<Machine>,
    /// Package the programs in this folder, which are for this machine, instead of building them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["machine", "check"])]
    programs: Option<PathBuf>,
    /// Build everything a second time, from a copy in another folder, and compare bit by bit
    #[arg(long)]
    check: bool,
    /// Run the artefacts, and install the packages in a temporary copy of this system (as root)
    #[arg(long = "try")]
    trial: bool,
    /// Allow uncommitted changes; the programs then report that in `--version`
    #[arg(long)]
    allow_dirty: bool,
    /// The maintainer of the packages
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = DEFAULT_MAINTAINER)]
    maintainer: String,
    /// Sign the checksums with this key of SSH
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
}

/// The maintainer of locally built packages: an address that receives no mail.
const DEFAULT_MAINTAINER: &str = "Local build of taskwork <taskwork@taskwork.invalid>";

/// The file with the checksums of all others.
const SUMS: &str = "SHA256SUMS";

/// The purpose of the signature, which `deploy/install.sh` checks.
const NAMESPACE: &str = "taskwork-release";

/// Builds a release.
///
/// # Errors
/// If a step fails, the second build differs, or an artefact does not work.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let root = workspace::root();
    let origin = Origin::find(&root, arguments.allow_dirty)?;
    if let Some(out) = &arguments.out {
        ensure_free(out)?;
    }
    let absolute = |folder: &PathBuf| folder.canonicalize().with_context(|| folder.display().to_string());
    let programs = arguments.programs.as_ref().map(absolute).transpose()?;
    let (target, tools) = (Project::read(&root)?.target, tools()?);
    install_tools(arguments, &tools)?;
    let work = target.join("artefacts");
    let first = make(arguments, &tools, &origin, programs.as_deref(), &work.join("one"))?;
    if arguments.check {
        let second = make(arguments, &tools, &origin, None, &work.join("other"))?;
        for folder in ["x86_64-unknown-linux-musl/release/stage", "aarch64-unknown-linux-musl/release/stage"]
        {
            let [one, other] = ["one", "other"].map(|name| work.join(name).join("target").join(folder));
            if one.exists() {
                ensure_same(&one, &other)?;
            }
        }
        ensure_same(&first, &second)?;
        println!("both builds are the same, bit by bit");
    }
    finish(arguments, &first)?;
    if arguments.trial {
        let script = work.join("trial.sh");
        fs::write(&script, include_str!("trial.sh"))?;
        succeed(Command::new("timeout").args(["600", "sh"]).arg(script).arg(&first).arg(&origin.commit))?;
    }
    let out = arguments.out.clone().unwrap_or_else(|| target.join("release-artefacts"));
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot replace {}", out.display()))?;
    }
    fs::create_dir_all(out.parent().unwrap_or(Path::new("/")))?;
    succeed(Command::new("cp").arg("-r").args([&first, &out]))?;
    succeed(Command::new("ls").args(["-s", "--human-readable"]).arg(&out))
}

/// Returns the folder of the tools, in cargo's target folder: their versions determine the bytes of packages.
///
/// # Errors
/// If cargo fails.
pub(crate) fn tools() -> Result<PathBuf> {
    Ok(Project::read(&workspace::root())?.target.join("release-tools"))
}

/// Installs the tools, the compilers and the standard libraries for the machines.
fn install_tools(arguments: &Arguments, tools: &Path) -> Result<()> {
    let mut packages = vec!["openssh-client"];
    packages.extend(arguments.trial.then_some(["lintian", "rpm"]).into_iter().flatten());
    if arguments.programs.is_none() {
        packages.extend(arguments.machine.iter().map(|machine| machine.compiler_package()));
        let targets: Vec<_> = arguments.machine.iter().map(|machine| machine.target()).collect();
        let add = ["target", "add"].into_iter().chain(targets.iter().map(String::as_str));
        step::run_chain(&[Step::new("standard libraries", "rustup", add)])?;
    }
    install::debian_packages(&packages)?;
    step::run_chain(&install::release_tools(&tools.to_string_lossy()))
}

/// Builds the release in the folder `work`, and returns the folder of the artefacts.
fn make(
    arguments: &Arguments,
    tools: &Path,
    origin: &Origin,
    programs: Option<&Path>,
    work: &Path,
) -> Result<PathBuf> {
    let (source, target, artefacts) = (work.join("source"), work.join("target"), work.join("artefacts"));
    origin.export(&source)?;
    if artefacts.exists() {
        fs::remove_dir_all(&artefacts).with_context(|| format!("cannot remove {}", artefacts.display()))?;
    }
    let project = &Project::read(&source)?;
    let maintainer = &arguments.maintainer;
    let auditable = tools.join("bin/cargo-auditable");
    let this = Machine::this().context("releases are made on x86_64 and aarch64 only")?;
    let built = if let Some(programs) = programs {
        vec![(this, programs.to_owned())]
    } else {
        println!("building the programs of commit {} in {}", origin.commit, work.display());
        let build =
            |machine| Ok((machine, build::build(&auditable, &source, &target, (project, origin), machine)?));
        arguments.machine.iter().copied().map(build).collect::<Result<_>>()?
    };
    let (_, own) = built.iter().find(|(machine, _)| *machine == this).with_context(|| {
        format!("completions and man pages need programs of this machine: add --machine {}", this.name())
    })?;
    let stage = Stage { tools, origin, project, maintainer, source, target, artefacts };
    let shared = stage.share(own)?;
    built.iter().try_for_each(|(machine, programs)| stage.pack(*machine, programs, &shared))?;
    Ok(stage.artefacts)
}

/// Adds the checksums, the signature and the script that installs the archive.
fn finish(arguments: &Arguments, artefacts: &Path) -> Result<()> {
    succeed(Command::new("cp").arg(workspace::root().join("deploy/install.sh")).arg(artefacts))?;
    let sum = format!("sha256sum -- * > ../{SUMS}; mv ../{SUMS} .");
    succeed(Command::new("sh").args(["-e", "-c", &sum]).current_dir(artefacts))?;
    if let Some(key) = &arguments.sign {
        let mut sign = Command::new("ssh-keygen");
        succeed(sign.args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"]).arg(key).arg(artefacts.join(SUMS)))?;
    }
    Ok(())
}

fn ensure_same(one: &Path, other: &Path) -> Result<()> {
    succeed(Command::new("diff").args(["--recursive", "--brief"]).args([one, other]))
        .context("the same source gave two different results in two folders")
}

/// Checks that a folder of the user can be replaced.
fn ensure_free(out: &Path) -> Result<()> {
    let is_free = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    ensure!(is_free, "{} is not an empty folder: name an empty or a new one", out.display());
    Ok(())
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_with_files_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for free in [folder.path(), &folder.path().join("new")] {
            ensure_free(free).unwrap();
        }
        fs::write(folder.path().join("thesis.pdf"), "").unwrap();
        for taken in [folder.path(), &folder.path().join("thesis.pdf")] {
            let error = ensure_free(taken).unwrap_err().to_string();
            assert!(error.contains("is not an empty folder"), "{error}");
        }
    }

    #[test]
    fn different_builds_are_an_error() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for folder in [&one, &other] {
            fs::write(folder.path().join("tsp"), "1").unwrap();
        }
        ensure_same(one.path(), other.path()).unwrap();
        fs::write(other.path().join("tsp"), "2").unwrap();
        let error = ensure_same(one.path(), other.path()).unwrap_err().to_string();
        assert!(error.starts_with("the same source gave two different results"), "{error}");
    }
}
