//! Shell completions and man pages.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command as Process, Stdio},
};

use clap::{Command, CommandFactory as _, Parser, ValueEnum as _};
use clap_complete::Shell;
use taskwork_cli::command::{Man, completions, with_notes};

use super::CommandLine;

/// The options of `man`.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    man: Man,
}

fn man(out: &Path) -> Man {
    Line::try_parse_from(["man", "--out", &out.to_string_lossy()]).unwrap().man
}

fn names(command: &Command) -> Vec<String> {
    command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
}

#[test]
fn completions_name_every_command_in_every_shell() {
    let names = names(&CommandLine::command());
    assert!(names.len() > 15 && names.contains(&"completions".to_owned()), "{names:?}");
    for &shell in Shell::value_variants() {
        let text = completions(&mut CommandLine::command(), shell);
        for name in &names {
            assert!(text.contains(name.as_str()), "{shell}: no {name}");
        }
        assert!(text.contains("--zk-session-timeout") || shell == Shell::Fish, "{shell}: options, too");
        assert!(text.contains("zk-session-timeout"), "{shell}: options, too");
    }
}

#[test]
fn help_lists_exit_codes_and_environment() {
    for line in [&["taskwork", "--help"][..], &["taskwork", "wait", "--help"]] {
        let help = with_notes(CommandLine::command()).try_get_matches_from(line).unwrap_err().to_string();
        for part in ["5                      there is no such", "TASKWORK_ZK_AUTH       as --zk-auth"] {
            assert!(help.contains(part), "no {part:?} in {help}");
        }
    }
}

#[test]
fn bash_completions_have_valid_syntax() {
    let text = completions(&mut CommandLine::command(), Shell::Bash);
    let mut shell = Process::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash is needed");
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

#[test]
fn man_pages_cover_every_command_and_are_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("share/man1");
    man(&out).run(CommandLine::command()).unwrap();
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let first = read("taskwork.1");
    for name in names(&CommandLine::command()) {
        assert!(first.contains(&name.replace('-', "\\-")), "taskwork.1 does not name {name}");
        let page = read(&format!("taskwork-{name}.1"));
        assert!(page.contains(".SH NAME") && page.contains("taskwork(1)"), "{name}");
    }
    let page = read("taskwork-wait.1");
    for part in ["EXIT STATUS", "there is no such cluster, job or node", "ENVIRONMENT", "TASKWORK_ZK_AUTH"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    man(&out).run(CommandLine::command()).unwrap();
    assert_eq!(read("taskwork.1"), first);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let failure = man(&file.join("man1")).run(CommandLine::command()).unwrap_err();
    assert!(failure.to_string().contains("man pages cannot be written"), "{failure}");
}
