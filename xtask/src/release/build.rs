//! Builds the programs of a release: linked statically, and reproducibly, bit by bit.
//!
//! Differences between folders or machines are replaced or removed: the paths of source files,
//! which panic messages contain, and the user's settings for other builds. The C library of this
//! system is linked statically: a program resolves names by `/etc/hosts` and DNS in a folder without other
//! files.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{files::Files, origin::Origin, project::Project};
use crate::workspace;

/// The machine that the programs are for.
pub(crate) const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The variables that are set for this build only, and not inherited from the user's environment.
const WITHHELD: [&str; 9] = [
    "C_INCLUDE_PATH",
    "CPATH",
    "HOST_CC",
    "LANG",
    "LIBRARY_PATH",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
];

/// Prefixes of further variables, which may end with the name of a machine, or follow `TARGET_`.
const WITHHELD_BEGINNINGS: [&str; 9] =
    ["AR", "ARFLAGS", "CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_", "CC", "CFLAGS", "CXX", "RANLIB"];

/// The built programs, and the packages in them.
#[derive(Debug)]
pub(crate) struct Built {
    /// The programs by their names.
    pub(crate) programs: Files,
    /// The folder of the programs.
    pub(crate) folder: PathBuf,
    /// Cargo's ids of the packages that were compiled into them.
    pub(crate) packages: BTreeSet<String>,
}

/// A part of a path and its replacement in the programs.
struct Replaced {
    path: String,
    by: String,
}

/// Builds all programs of `project` from the folder `source` in the folder `target`.
///
/// # Errors
/// If a program cannot be built, is missing, is not linked statically, or contains a path of this machine.
pub(crate) fn build(source: &Path, target: &Path, project: &Project, origin: &Origin) -> Result<Built> {
    let replaced = replaced(source, target)?;
    let output = command(source, target, project, origin, &replaced)
        .stdout(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the programs cannot be built: {}", output.status);
    let packages = compiled(&String::from_utf8_lossy(&output.stdout), target);
    let folder = target.join(TRIPLE).join("release");
    let programs = collect(&folder, &project.programs)?;
    for (name, program) in programs.iter() {
        check(&program.bytes, &replaced).with_context(|| folder.join(name).display().to_string())?;
    }
    Ok(Built { programs, folder, packages })
}

fn command(
    source: &Path,
    target: &Path,
    project: &Project,
    origin: &Origin,
    replaced: &[Replaced],
) -> Command {
    let mut command = workspace::command("cargo");
    let user = env::vars_os().map(|(name, _)| name);
    user.filter(|name| is_withheld(&name.to_string_lossy())).for_each(|name| {
        command.env_remove(name);
    });
    let rust = ["-Ctarget-feature=+crt-static".to_owned()].into_iter();
    let rust = rust.chain(replaced.iter().map(|it| format!("--remap-path-prefix={}={}", it.path, it.by)));
    let c = replaced.iter().map(|it| format!("-ffile-prefix-map={}={}", it.path, it.by));
    command
        .current_dir(source)
        .args(["build", "--release", "--locked", "--message-format=json-render-diagnostics"])
        .args(["--target", TRIPLE, "--target-dir"])
        .arg(target)
        .args(["--config", "profile.release.strip=\"symbols\""])
        .args(project.selection())
        .env("CARGO_ENCODED_RUSTFLAGS", rust.collect::<Vec<_>>().join("\x1f"))
        .env(format!("CFLAGS_{}", TRIPLE.replace('-', "_")), c.collect::<Vec<_>>().join(" "))
        .env("CARGO_INCREMENTAL", "0")
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("TASKWORK_COMMIT", &origin.commit)
        .env("SOURCE_DATE_EPOCH", origin.epoch.to_string());
    command
}

/// Returns whether a variable of the user's must not reach the build.
fn is_withheld(name: &str) -> bool {
    let of_target = name.strip_prefix("TARGET_").unwrap_or(name);
    let begins = |beginning: &&str| {
        let end = of_target.strip_prefix(beginning);
        // `CC_x86_64-unknown-linux-gnu`, but not `CCACHE_DIR`.
        end.is_some_and(|end| end.is_empty() || end.starts_with('_') || beginning.ends_with('_'))
    };
    WITHHELD.contains(&name) || WITHHELD_BEGINNINGS.iter().any(begins)
}

/// Returns the folders that differ between machines. If several match a path, the last one is used, by rustc and
/// by gcc.
fn replaced(source: &Path, target: &Path) -> Result<Vec<Replaced>> {
    let sysroot = printed("rustc", &["--print", "sysroot"])?;
    let version = printed("rustc", &["-vV"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    let library = format!("{sysroot}/lib/rustlib/src/rust");
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("where cargo keeps crates")?;
    // The standard library's own files are called so already, where the compiler has no source of it.
    let standard = format!("/rustc/{commit}");
    let folders = [
        (source, "/taskwork"),
        (target, "/taskwork/target"),
        (&home, "/cargo"),
        (Path::new(&sysroot), "/rust"),
        (Path::new(&library), &standard),
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

/// Returns the output of a program, without the final line break.
///
/// # Errors
/// If it fails.
pub(crate) fn printed(program: &str, arguments: &[&str]) -> Result<String> {
    let output = workspace::command(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = arguments.join(" ");
    ensure!(output.status.success(), "{program} {line}: {}\n{text}{}", output.status, error.trim());
    Ok(text.trim_end().to_owned())
}

/// Returns the packages that cargo reports as compiled for the programs, and not only for
/// their build.
fn compiled(messages: &str, target: &Path) -> BTreeSet<String> {
    let ours = target.join(TRIPLE);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artefacts = messages.filter(|message| message["reason"] == "compiler-artifact");
    let is_ours = |message: &Value| {
        let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        files.into_iter().any(|file| Path::new(file).starts_with(&ours))
    };
    artefacts
        .filter(is_ours)
        .filter_map(|message| message["package_id"].as_str().map(str::to_owned))
        .collect()
}

/// Reads the programs.
fn collect(folder: &Path, names: &[String]) -> Result<Files> {
    let mut programs = Files::default();
    for name in names {
        let path = folder.join(name);
        let bytes =
            fs::read(&path).with_context(|| format!("the program {} was not built", path.display()))?;
        programs.add_program(name, bytes)?;
    }
    Ok(programs)
}

/// Checks the type and the content of a program.
fn check(program: &[u8], replaced: &[Replaced]) -> Result<()> {
    let is_dynamic = is_dynamic(program).context("this is no program of 64 bits (ELF)")?;
    ensure!(!is_dynamic, "it is not linked statically, and would need the libraries of this system");
    for Replaced { path, .. } in replaced {
        if contains(program, path.as_bytes()) {
            bail!(
                "it contains the path {path} of this machine, so other machines would build another program"
            );
        }
    }
    Ok(())
}

/// Returns whether a program asks for a loader of libraries; nothing if it is no program.
fn is_dynamic(program: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at.checked_add(bytes)?)?;
        usize::try_from(field.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))).ok()
    };
    // 64 bits, the least byte of a number first.
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (start, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let mut is_dynamic = false;
    for index in 0..count {
        let kind = number(start.checked_add(index.checked_mul(size)?)?, 4)?;
        is_dynamic |= u32::try_from(kind).ok()? == INTERPRETER;
    }
    Some(is_dynamic)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a program with segments of these kinds.
    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut program = vec![0; 64];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[0x20] = 64;
        program[0x36] = 56;
        program[0x38] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            program.extend(kind.to_le_bytes());
            program.extend([0; 52]);
        }
        program
    }

    #[test]
    fn dynamically_linked_program_is_refused() {
        assert_eq!(is_dynamic(&elf(&[1, 2, 6])), Some(false));
        assert_eq!(is_dynamic(&elf(&[1, 3, 2])), Some(true));
        let whole = elf(&[1, 3]);
        for broken in [&b""[..], b"#!/bin/sh\n", &whole[..70], &[0x7f]] {
            assert_eq!(is_dynamic(broken), None);
        }
        let error = check(&elf(&[3]), &[]).unwrap_err().to_string();
        assert!(error.contains("not linked statically"), "{error}");
        // The test itself is built as usual.
        let this = fs::read(env::current_exe().unwrap()).unwrap();
        assert!(is_dynamic(&this).is_some());
    }

    #[test]
    fn program_with_path_of_this_machine_is_refused() {
        let paths = [Replaced { path: "/home/somebody/project".to_owned(), by: "/taskwork".to_owned() }];
        let mut program = elf(&[1]);
        check(&program, &paths).unwrap();
        program.extend(b"...panicked at /home/somebody/project/src/main.rs");
        let error = check(&program, &paths).unwrap_err().to_string();
        assert!(error.contains("/home/somebody/project"), "{error}");
    }

    #[test]
    fn missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("uts"), "").unwrap();
        let error = collect(folder.path(), &["uts".to_owned(), "tsp".to_owned()]).unwrap_err().to_string();
        assert!(error.ends_with("/tsp was not built"), "{error}");
    }

    #[test]
    fn packages_compiled_only_for_build_are_excluded() {
        let message = |id: &str, file: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"{id}\",\"filenames\":[\"/t/{file}\"]}}\n"
            )
        };
        let text = message("syn", "release/deps/libsyn.rlib")
            + &message("bytes", &format!("{TRIPLE}/release/deps/libbytes.rlib"))
            + "no JSON\n{\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(compiled(&text, Path::new("/t")), BTreeSet::from(["bytes".to_owned()]));
    }

    #[test]
    fn folder_name_misread_by_compilers_is_refused() {
        assert!(Replaced::new(Path::new("/home/a b"), "/taskwork").is_err());
        assert_eq!(Replaced::new(Path::new("/home/a"), "/taskwork").unwrap().path, "/home/a");
    }

    #[test]
    fn user_settings_for_builds_are_withheld() {
        for name in [
            "RUSTFLAGS",
            "RUSTC",
            "CC",
            "CC_x86_64_unknown_linux_gnu",
            "TARGET_CC",
            "TARGET_CFLAGS",
            "AR",
            "CPATH",
            "CARGO_BUILD_RUSTC",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_DIR",
        ] {
            assert!(is_withheld(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "ARCH", "CCACHE_DIR", "HTTPS_PROXY"] {
            assert!(!is_withheld(name), "{name}");
        }
    }

    #[test]
    fn user_flags_do_not_reach_build() {
        let metadata = super::super::project::tests::small();
        let project = Project::parse(&metadata).unwrap();
        let origin = Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 12 };
        let replaced = [Replaced { path: "/p".to_owned(), by: "/taskwork".to_owned() }];
        let command = command(Path::new("/p"), Path::new("/p/t"), &project, &origin, &replaced);
        let set: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        assert!(set.contains(&(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\x1f--remap-path-prefix=/p=/taskwork"
        )));
        assert!(set.contains(&("CFLAGS_x86_64_unknown_linux_gnu", "-ffile-prefix-map=/p=/taskwork")));
        assert!(set.contains(&("CARGO_INCREMENTAL", "0")) && set.contains(&("SOURCE_DATE_EPOCH", "12")));
        assert!(!set.iter().any(|(name, _)| name.starts_with("CARGO_PROFILE_")));
    }
}
