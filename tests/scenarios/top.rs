//! `taskwork top` on a separate terminal, which `script` creates: its output, its keys, and that it restores
//! the terminal.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use taskwork::view::{Content, Event, Recorder};
use taskwork_tests::cluster::{Cluster, SOON, program};
use tempfile::TempDir;
use zk_server::Setup;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The key that redraws everything, so that a text is contiguous.
const REDRAW: &[u8] = b"\x0c";
/// The text that the shell prints after the command.
const AFTER: &str = "the command has ended";

/// A command on a terminal.
struct OnTerminal {
    script: Child,
    keys: ChildStdin,
    shown: PathBuf,
    process: PathBuf,
}

impl OnTerminal {
    /// Starts `taskwork top`. When it exits, the shell prints the state of the terminal.
    fn start(folder: &Path, arguments: &str) -> Self {
        let (shown, process) = (folder.join("shown"), folder.join("process"));
        let line = format!(
            "stty rows 30 cols 100; TERM=xterm LANG=C.UTF-8 sh -c 'echo $$ > {process}; exec {top} top {arguments}'; \
             code=$?; echo; echo {AFTER}: $code; stty -a",
            process = process.display(),
            top = program("taskwork").unwrap().display(),
        );
        let mut script = Command::new("script")
            .args(["-qfc", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(File::create(&shown).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keys = script.stdin.take().unwrap();
        Self { script, keys, shown, process }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.shown).unwrap()).into_owned()
    }

    /// Waits until a text is displayed.
    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + SOON;
        loop {
            let before = self.written().len();
            self.press(REDRAW);
            thread::sleep(LOOK_EVERY);
            let seen = words(self.written().get(before..).unwrap_or_default());
            if seen.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "no {text:?} in {seen:?}");
        }
    }

    fn id(&self) -> String {
        fs::read_to_string(&self.process).unwrap().trim().to_owned()
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([&format!("-{name}"), &self.id()]).status().unwrap().success());
    }

    /// Waits until the command has exited, and returns its exit code. The terminal must be restored.
    fn end(mut self) -> String {
        let deadline = Instant::now() + SOON;
        while self.script.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it has not ended: {}", self.written());
            thread::sleep(LOOK_EVERY);
        }
        let written = self.written();
        let place = |what: &str| written.rfind(what).unwrap_or_else(|| panic!("no {what:?} in {written:?}"));
        assert!(place("\x1b[?1049h") < place("\x1b[?1049l"), "the other screen was left");
        assert!(place("\x1b[?25l") < place("\x1b[?25h"), "the cursor is seen");
        let after = &written[place(AFTER)..];
        let settings: Vec<&str> = after.split_whitespace().collect();
        for setting in ["icanon", "isig", "echo", "opost", "icrnl"] {
            assert!(settings.contains(&setting), "no {setting} in {after:?}");
        }
        after.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Returns the words that a terminal displays for this output.
fn words(written: &str) -> String {
    let mut shown = String::new();
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        if c != '\x1b' {
            shown.push(c);
            continue;
        }
        // A sequence ends with a letter.
        rest.by_ref().find(char::is_ascii_alphabetic);
        shown.push(' ');
    }
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// 2026-11-25 18:00:00 UTC, in milliseconds since 1970.
const RECORDED_MS: u64 = 1_795_629_600_000;

/// Writes a record of a cluster without nodes.
fn record(folder: &Path) -> PathBuf {
    let file = folder.join("cluster-1.jsonl");
    let mut recorder = Recorder::new(BufWriter::new(File::create(&file).unwrap()), u64::MAX);
    for event in [Event::of(RECORDED_MS, "", Content::Found), Event::tick(RECORDED_MS)] {
        recorder.note(&event).unwrap();
    }
    recorder.finish().unwrap();
    file
}

#[test]
fn terminal_is_restored_after_every_exit() {
    let folder = TempDir::new().unwrap();
    let replay = format!("--replay {}", record(folder.path()).display());
    let start = || {
        let mut top = OnTerminal::start(folder.path(), &replay);
        top.wait_for("record cluster-1.jsonl");
        top.wait_for("at its end, 2026-11-25 18:00:00 UTC");
        top
    };
    for (keys, code) in [(&b"q"[..], "0"), (b"\x03", "0"), (b"?\x03", "0"), (b"/text\x03", "0")] {
        let mut top = start();
        top.press(keys);
        assert_eq!(top.end(), code, "{keys:?}");
    }
    for (signal, code) in [("TERM", "143"), ("HUP", "129"), ("INT", "130")] {
        let top = start();
        top.signal(signal);
        assert_eq!(top.end(), code, "{signal}");
    }
}

#[test]
fn terminal_is_taken_over_again_after_stop() {
    let folder = TempDir::new().unwrap();
    let replay = format!("--replay {}", record(folder.path()).display());
    let mut top = OnTerminal::start(folder.path(), &replay);
    top.wait_for("record cluster-1.jsonl");
    let state = PathBuf::from("/proc").join(top.id()).join("stat");
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < deadline, "not in time: {what}");
            thread::sleep(LOOK_EVERY);
        }
    };
    top.signal("STOP");
    until("it is stopped", &|| fs::read_to_string(&state).unwrap().contains(") T "));
    let before = top.written().len();
    top.signal("CONT");
    until("the terminal is taken over", &|| top.written()[before..].contains("\x1b[?1049h"));
    top.wait_for("record cluster-1.jsonl");
    top.press(b"q");
    assert_eq!(top.end(), "0");
}

#[test]
fn top_exits_when_its_terminal_is_gone() {
    let folder = TempDir::new().unwrap();
    let mut top = OnTerminal::start(folder.path(), &format!("--replay {}", record(folder.path()).display()));
    top.wait_for("no job was submitted");
    let process = PathBuf::from("/proc").join(top.id());
    top.script.kill().unwrap();
    let deadline = Instant::now() + SOON;
    while fs::read_to_string(process.join("cmdline")).is_ok_and(|line| !line.is_empty()) {
        assert!(Instant::now() < deadline, "it continues without a terminal");
        thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn terminal_shows_cluster_events() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let arguments = format!("--zk {} --zk-session-timeout 2 --ascii", cluster.hosts());
    let mut top = OnTerminal::start(cluster.folder(), &arguments);
    top.wait_for("2 nodes, 2 workers, 0 open jobs");

    let said = cluster.run("tree", &["submit", "40", "--spin", "100", "--name", "a tree"]).unwrap();
    assert_eq!(said.code, 0, "{}", said.err);
    let id = said.out.trim();
    top.wait_for(&format!("{id} running"));
    top.wait_for("a tree");
    top.wait_for("of 2 workers on 2 nodes");

    // The server is stopped and restarted.
    cluster.servers_mut().kill(0).unwrap();
    top.wait_for("ZooKeeper has not answered since");
    cluster.servers_mut().revive(0).unwrap();
    cluster.servers_mut().wait_until_serving(0).unwrap();
    top.wait_for("answers, after 1 outage");
    top.wait_for("of 2 workers on 2 nodes");

    // A node leaves when it is asked to, and only that one.
    let names = [0, 1].map(|node| cluster.name_of(node).unwrap());
    let leaves = usize::from(names[0] > names[1]);
    top.press(b"\x1b[H");
    top.wait_for(&format!(">{}", names[leaves]));
    top.press(b"d");
    top.wait_for(&format!("Ask {} to hand over its tasks", names[leaves]));
    top.press(b"n");
    top.wait_for("was not asked to leave");
    top.press(b"d");
    top.wait_for("y/n");
    top.press(b"y");
    cluster.nodes[leaves].wait().unwrap();
    top.wait_for(&format!("{} has left", names[leaves]));
    assert!(!cluster.nodes[1 - leaves].has_ended().unwrap());
    top.press(b"q");
    assert_eq!(top.end(), "0");

    // Without a terminal the state is printed once.
    let once = cluster.run("taskwork", &["top"]).unwrap();
    assert!(
        once.code == 0 && once.out.contains(&names[1 - leaves]) && once.out.contains("a tree"),
        "{once:?}"
    );
    assert_eq!(cluster.json("taskwork", &["top"]).unwrap()["jobs"][id]["about"]["stage"], "running");
    let missing = cluster.run("taskwork", &["top", "--job", "77"]).unwrap();
    assert!(missing.code == 5 && missing.err.contains("j-0000000077"), "{missing:?}");
    assert_eq!(cluster.run("taskwork", &["cancel", id]).unwrap().code, 0);
}
