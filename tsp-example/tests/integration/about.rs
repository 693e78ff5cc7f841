//! The output of `tsp` about itself: completions, man pages, version and colours.

use std::{fs, process::Command};

use crate::command::tsp;

#[test]
fn command_has_completions_and_man_pages() {
    let output = tsp(&["completions", "bash"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in
        ["solve", "node", "submit", "check", "generate", "completions", "--log-every", "--plot", "--bound"]
    {
        assert!(text.contains(word), "no {word}");
    }
    assert_eq!(tsp(&["completions", "dcl"]).status.code(), Some(2), "there is no such shell");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    assert!(tsp(&["man", "--out", &out]).status.success());
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("tsp.1").contains("travelling salesman"));
    assert!(page("tsp-solve.1").contains("plot") && page("tsp-node.1").contains("drain"));
}

#[test]
fn version_names_the_build() {
    let output = tsp(&["--version"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("tsp {}\nbuild ", env!("CARGO_PKG_VERSION"))), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(tsp(&["-V"]).stdout, text.as_bytes());
}

#[test]
fn output_without_colour_support_is_plain() {
    let help = |no_color: &str| {
        let command = env!("CARGO_BIN_EXE_tsp");
        let output = Command::new(command)
            .arg("--help")
            .env("CLICOLOR_FORCE", "1")
            .env("NO_COLOR", no_color)
            .env("TERM", "xterm")
            .output();
        output.unwrap().stdout
    };
    assert!(help("").contains(&0x1b), "this would be coloured otherwise");
    assert!(!help("1").contains(&0x1b));
}
