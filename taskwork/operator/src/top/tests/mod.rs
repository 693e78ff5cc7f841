//! Pictures of a cluster with known state.

mod acting;
mod pictures;

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};
use serde_json::{Value, json};
use taskwork::view::{Content, Event};

use super::{
    can_draw,
    draw::{Look, draw},
    has_unicode,
    keys::command,
    plain,
    state::{Effect, Shown, Source, State},
};

const JOB: &str = "j-0000000001";
const PLAIN: Look = Look { is_ascii: false, has_colours: false };
const ASCII: Look = Look { is_ascii: true, has_colours: false };
/// A name that would disturb a terminal if it were printed unchanged.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\n\u{202e}旅行";

fn state() -> State {
    State::new(Source::Cluster("/taskwork/default".to_owned()), Shown::Running)
}

fn see(state: &mut State, at_ms: u64, path: &str, content: Content) {
    state.take(&Event::of(at_ms, path, content));
}

fn data(record: &Value) -> Content {
    Content::Data(record.to_string().into_bytes())
}

fn member(node: &str) -> Content {
    data(&json!({
        "format": 2, "node": node, "address": "127.0.0.1:7", "fingerprint": "", "workers": 2, "program": "tree",
        "program_version": "1", "started_ms": 1, "labels": { "zone": "a" },
    }))
}

fn job(name: &str, state: &str) -> Content {
    let is_over = state != "running";
    data(&json!({
        "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": name, "submitter": "a",
        "state": state, "attempt": 1, "attempts_max": 3, "root": "", "shared_chunks": 0, "submitted_ms": 1,
        "finished_ms": if is_over { json!(61_001) } else { Value::Null }, "reason": null, "lost": [],
    }))
}

fn report(at_ms: u64, worked: u64) -> Content {
    data(&json!({
        "format": 2, "attempt": 1, "last": false, "at_ms": at_ms,
        "figures": {
            "worked": worked, "tasks": 2_345, "outlook": { "AtLeast": 90.0 }, "open_tasks": 4, "stolen_tasks": 17,
            "done_attos": 125_000_000_000_000_000_u64,
            "times": { "searching_ns": 3_000_000_000_u64, "looking_ns": 1_000_000_000 },
        },
        "requests": { "reads": 1, "writes": 2, "multis": 3, "failed_multis": 4 },
        "pool": { "workers": 2, "busy": 1, "queued": 3, "waiting": 0, "hungry": 0 },
        "best": { "value": 100.5, "sense": "min", "name": "incumbent" },
        "process": { "resident_bytes": 12_582_912, "cpu_ms": 1, "load": 0.5 },
    }))
}

/// Returns a cluster in which two nodes work on a job, and a third one has joined later.
fn busy() -> State {
    let mut state = state();
    see(&mut state, 1, "", Content::Found);
    state.take(&Event::tick(1));
    for node in ["n1", "n2"] {
        see(&mut state, 1, &format!("members/{node}"), member(node));
    }
    see(&mut state, 1, &format!("jobs/{JOB}"), job("the tree", "running"));
    see(&mut state, 1, &format!("jobs/{JOB}/attempts/1/parked"), Content::Children(0));
    for second in 1..=30_u64 {
        if second == 10 {
            see(&mut state, 10_000, "members/n3", member("n3"));
        }
        for node in ["n1", "n2"] {
            let path = format!("jobs/{JOB}/figures/{node}");
            see(&mut state, second * 1_000, &path, report(second * 1_000, second * 2_000));
        }
        state.take(&Event::tick(second * 1_000));
    }
    state
}

/// Returns the picture, line by line.
fn drawn(state: &mut State, width: u16, height: u16, look: Look) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines: Vec<String> = (0..height)
        .map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
        .collect();
    assert!(!lines.iter().any(|line| line.chars().any(char::is_control)), "{lines:#?}");
    if look.is_ascii {
        assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
    }
    lines
}

/// Returns the first line that contains a text.
fn line<'a>(lines: &'a [String], text: &str) -> &'a str {
    lines.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text:?} in {lines:#?}"))
}

fn press(state: &mut State, code: KeyCode) -> Effect {
    let key = KeyEvent::new(code, KeyModifiers::NONE);
    command(state.focus(), key).map_or(Effect::None, |command| state.perform(command))
}

fn type_in(state: &mut State, text: &str) {
    for c in text.chars() {
        assert_eq!(press(state, KeyCode::Char(c)), Effect::None);
    }
}

fn without_effect(state: &mut State, codes: &[KeyCode]) {
    for code in codes {
        assert_eq!(press(state, *code), Effect::None, "{code:?}");
    }
}

#[test]
fn output_without_terminal_is_printed_once() {
    let state = busy();
    let text = plain::text(&state, true);
    for part in [
        "cluster  /taskwork/default",
        "JOB",
        "the tree",
        "25.0 %",
        "10.4 %",
        "4,000/s",
        "NODE",
        "works",
        "12 MiB",
        "zone=a",
        "n3 has joined",
        "ZooKeeper answers",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let json = plain::json(&state);
    assert_eq!(json["jobs"][JOB]["about"]["share"], 0.25);
    assert_eq!(json["members"].as_object().unwrap().len(), 3);
}

#[test]
fn terminal_and_character_set_are_detected_from_environment() {
    let is = |text: &str| Some(text.into());
    assert!(can_draw(true, is("xterm-256color")));
    assert!(
        !can_draw(true, is("dumb"))
            && !can_draw(true, is(""))
            && !can_draw(true, None)
            && !can_draw(false, is("xterm"))
    );
    let of = |given: &'static [(&str, &str)]| {
        has_unicode(|name| given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    };
    assert!(
        of(&[])
            && of(&[("LANG", "C.UTF-8")])
            && of(&[("LC_ALL", ""), ("LC_CTYPE", "de_DE.utf8"), ("LANG", "C")])
    );
    assert!(
        !of(&[("LANG", "C")])
            && !of(&[("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")])
            && !of(&[("LANG", "de_DE.ISO-8859-1")])
    );
}
