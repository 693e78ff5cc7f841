//! Builds the programs of a release: static, with a list of their dependencies (cargo-auditable), and reproducible.
//!
//! Differences between folders or machines are replaced or removed: the paths of source files, which panic messages
//! contain, and the user's settings for other builds.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};

use super::{origin::Origin, project::Project, succeed};
use crate::workspace;

/// A kind of machine that programs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Machine {
    #[value(name = "aarch64")]
    Arm,
    #[value(name = "x86_64")]
    Intel,
}

impl Machine {
    /// Returns the machine that runs this, if there are releases for it.
    pub(super) fn this() -> Option<Self> {
        [Self::Arm, Self::Intel].into_iter().find(|machine| machine.name() == env::consts::ARCH)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arm => "aarch64",
            Self::Intel => "x86_64",
        }
    }

    /// Returns the target of rustc: with musl as C library, which is made for static programs.
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }

    /// Returns the package of Debian with the C compiler and the linker.
    pub(super) fn compiler_package(self) -> &'static str {
        match self {
            machine if Some(machine) == Self::this() => "gcc",
            Self::Arm => "gcc-aarch64-linux-gnu",
            Self::Intel => "gcc-x86-64-linux-gnu",
        }
    }
}

/// A folder that differs between machines, and its name in the programs.
#[derive(Debug)]
pub(super) struct Replaced {
    path: String,
    by: String,
}

/// Returns a command without the user's settings for builds, for a source in the folder `source` and a target folder.
pub(super) fn command(program: impl AsRef<OsStr>, source: &Path, target: &Path, origin: &Origin) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(env::vars_os().filter(|(name, _)| is_kept(&name.to_string_lossy())))
        .env("CARGO_TARGET_DIR", target)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("SOURCE_DATE_EPOCH", &origin.epoch)
        .current_dir(source);
    command
}

/// Returns whether a variable of the user reaches the tools: those that locate programs, toolchains and registries.
fn is_kept(name: &str) -> bool {
    const BEGINNINGS: [&str; 6] =
        ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_", "RUSTUP_", "SSL_CERT_"];
    ["CARGO_HOME", "HOME", "PATH", "TMPDIR"].contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || name.to_lowercase().ends_with("_proxy")
}

/// Builds all programs of `project` for `machine` from the folder `source` in the folder `target`, and returns their folder.
///
/// # Errors
/// If a program cannot be built, is not linked statically, or contains a path of this machine.
pub(super) fn build(
    auditable: &Path,
    source: &Path,
    target: &Path,
    (project, origin): (&Project, &Origin),
    machine: Machine,
) -> Result<PathBuf> {
    let replaced = replaced(source, target)?;
    let build = command(auditable, source, target, origin);
    succeed(&mut with_flags(build, project, origin, machine, &replaced))?;
    let folder = target.join(machine.target()).join("release");
    project.programs().try_for_each(|program| check(&folder.join(program), &replaced))?;
    Ok(folder)
}

fn with_flags(
    mut build: Command,
    project: &Project,
    origin: &Origin,
    machine: Machine,
    replaced: &[Replaced],
) -> Command {
    let target = machine.target();
    let [cc, cargo] = [target.replace('-', "_"), target.replace('-', "_").to_uppercase()];
    let gnu = format!("{}-linux-gnu", machine.name());
    let rust = replaced.iter().map(|it| format!("--remap-path-prefix={}={}", it.path, it.by));
    let c = replaced.iter().map(|it| format!("-ffile-prefix-map={}={}", it.path, it.by));
    build
        .args(["auditable", "build", "--release", "--locked", "--target", &target])
        .args(["--config", "profile.release.strip=\"symbols\""])
        .args(project.selection())
        .env("CARGO_ENCODED_RUSTFLAGS", rust.collect::<Vec<_>>().join("\x1f"))
        .env(format!("CARGO_TARGET_{cargo}_LINKER"), format!("{gnu}-gcc"))
        .env(format!("CC_{cc}"), format!("{gnu}-gcc"))
        .env(format!("AR_{cc}"), format!("{gnu}-ar"))
        .env(format!("CFLAGS_{cc}"), c.collect::<Vec<_>>().join(" "))
        .env("CARGO_INCREMENTAL", "0")
        .env("TASKWORK_COMMIT", &origin.commit);
    build
}

/// Returns the folders that differ between machines. If several match a path, the last one is used, by rustc and
/// by gcc.
fn replaced(source: &Path, target: &Path) -> Result<Vec<Replaced>> {
    let sysroot = sysroot()?;
    let version = output(workspace::command("rustc").arg("-vV"))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    let library = sysroot.join("lib/rustlib/src/rust");
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("the folder in which cargo keeps crates is unknown: set CARGO_HOME")?;
    // The standard library's own files have this name where the compiler has no source of it.
    let standard = format!("/rustc/{commit}");
    let folders = [
        (source, "/taskwork"),
        (target, "/taskwork/target"),
        (&home, "/cargo"),
        (&sysroot, "/rust"),
        (&library, &standard),
    ];
    folders.into_iter().map(|(path, by)| Replaced::new(path, by)).collect()
}

impl Replaced {
    fn new(path: &Path, by: &str) -> Result<Self> {
        let text = path.to_str().filter(|path| !path.contains(char::is_whitespace));
        let text = text.with_context(|| {
            let path = path.display();
            format!("a release cannot be built with the folder {path}: its name has blanks, or is not UTF-8")
        })?;
        Ok(Self { path: text.to_owned(), by: by.to_owned() })
    }
}

/// Returns the folder of the Rust toolchain.
///
/// # Errors
/// If there is no rustc.
pub(super) fn sysroot() -> Result<PathBuf> {
    Ok(output(workspace::command("rustc").args(["--print", "sysroot"]))?.trim_end().into())
}

/// Returns the output of a command.
fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, .. } =
        command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Checks that a program needs no loader of libraries, and contains no path of this machine.
fn check(program: &Path, replaced: &[Replaced]) -> Result<()> {
    let name = program.display();
    let headers = output(Command::new("readelf").arg("--program-headers").arg(program).env("LC_ALL", "C"))?;
    ensure!(
        !headers.contains("INTERP"),
        "{name} is not linked statically, and would need the libraries of this system"
    );
    let mut search = Command::new("grep");
    search.args(["--only-matching", "--text", "--fixed-strings"]);
    search.args(replaced.iter().flat_map(|it| ["-e", &it.path])).arg(program);
    let found = search.output().context("cannot start grep")?;
    let path = String::from_utf8_lossy(&found.stdout);
    // The status is 1 if nothing was found, and 2 at an error.
    ensure!(
        found.status.code() == Some(1),
        "{name} contains the path {} of this machine, so other machines would build another program: {}",
        path.lines().next().unwrap_or("?"),
        String::from_utf8_lossy(&found.stderr).trim_end()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamically_linked_program_is_refused() {
        // The test itself is built as usual.
        let error = check(&env::current_exe().unwrap(), &[]).unwrap_err().to_string();
        assert!(error.contains("is not linked statically"), "{error}");
    }

    #[test]
    fn program_with_path_of_this_machine_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Headers of a program without segments.
        let mut program = vec![0; 64];
        program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        program[0x10] = 2;
        program[0x12] = 62;
        program[0x34] = 64;
        let paths = [Replaced::new(Path::new("/home/a/project"), "/taskwork").unwrap()];
        std::fs::write(file.path(), &program).unwrap();
        check(file.path(), &paths).unwrap();
        program.extend(b"...panicked at /home/a/project/src/main.rs");
        std::fs::write(file.path(), &program).unwrap();
        let error = check(file.path(), &paths).unwrap_err().to_string();
        assert!(error.contains("contains the path /home/a/project of this machine"), "{error}");
    }

    #[test]
    fn folder_name_misread_by_compilers_is_refused() {
        assert!(Replaced::new(Path::new("/home/a b"), "/taskwork").is_err());
        assert_eq!(Replaced::new(Path::new("/home/a"), "/taskwork").unwrap().path, "/home/a");
    }

    #[test]
    fn user_settings_for_builds_are_withheld() {
        for name in
            ["RUSTFLAGS", "RUSTC", "CC", "TARGET_CFLAGS", "CPATH", "CARGO_PROFILE_RELEASE_LTO", "LANG"]
        {
            assert!(!is_kept(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN", "https_proxy", "CARGO_NET_OFFLINE"] {
            assert!(is_kept(name), "{name}");
        }
    }
}
