//! Shell completions, man pages, and the description of outputs.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command as Process, Stdio},
};

use clap::{Command, CommandFactory as _, Parser, ValueEnum as _};
use clap_complete::Shell;
use taskwork_cli::command::{Man, with_notes};

use super::CommandLine;
use crate::{
    completions::script,
    json::{SCHEMA, SCHEMA_TEXT},
};

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
        let text = script(CommandLine::command(), shell);
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
fn help_lists_own_options_before_those_of_all_commands() {
    for sub in CommandLine::command().get_subcommands() {
        let has_connection = sub.get_arguments().any(|argument| argument.get_id() == "zk_connect_timeout");
        for argument in sub.get_opts().filter(|_| has_connection) {
            let name = argument.get_long().unwrap_or_default();
            let is_common =
                name.starts_with("zk") || ["cluster", "insecure", "log", "log-format"].contains(&name);
            assert_eq!(argument.get_help_heading().is_some(), is_common, "{} --{name}", sub.get_name());
        }
    }
}

/// Returns the texts between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_output_is_described_in_schema_and_document() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let document = fs::read_to_string(document).unwrap();
    let rows: Vec<(&str, &str)> =
        document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | ")).collect();
    // The backquote at the start of each row was cut off.
    let commands: Vec<String> = rows.iter().map(|(commands, _)| format!("`{commands}")).collect();
    let commands: Vec<&str> = commands.iter().flat_map(|commands| quoted(commands)).collect();
    let command = CommandLine::command();
    let prints_json = |sub: &&Command| {
        sub.get_arguments().any(|argument| argument.get_id() == "json")
            && !["dashboard", "down"].contains(&sub.get_name())
    };
    for sub in command.get_subcommands().filter(prints_json) {
        assert!(commands.contains(&sub.get_name()), "docs/json.md has no row for {}", sub.get_name());
    }
    let schema: serde_json::Value = serde_json::from_str(SCHEMA_TEXT).unwrap();
    let definitions = schema["$defs"].as_object().unwrap();
    let named: Vec<&str> = rows.iter().flat_map(|(_, definitions)| quoted(definitions)).collect();
    for name in &named {
        assert!(definitions.contains_key(*name), "the schema does not define {name}");
    }
    let parts = ["state", "outlook", "figures", "requests", "cost", "display", "facts", "candidate"];
    for name in definitions.keys().filter(|name| !parts.contains(&name.as_str())) {
        assert!(named.contains(&name.as_str()), "docs/json.md does not name {name}");
        let version = &definitions[name]["properties"]["schema"]["const"];
        let is_own = name.starts_with("result");
        assert!(is_own || *version == SCHEMA, "{name} has version {version}");
    }
    assert!(document.contains(&format!("`schema`, now {SCHEMA},")));
}

#[test]
fn bash_completions_have_valid_syntax() {
    let text = script(CommandLine::command(), Shell::Bash);
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
