//! The processes that tasks start, which end with this one, in whatever way that ends.
//!
//! Each is the first of a group, to which belong those that it starts itself. A process that is killed can do nothing
//! about its groups any more, so a guard does: a shell that hears from a pipe which groups there are, and kills those
//! that are left when the pipe is closed, as the system does in any case. A group that begins at that very time is known,
//! on systems with `/proc`, by a variable in its environment, of which the guard hears before the group is there.

use std::{
    collections::BTreeSet,
    fmt::Display,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    process::{self, Child, ChildStdin, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// The variable that tells the processes of one start from all others.
const START: &str = "DATAFLOW_START";

/// What the guard does: it notes the start that is under way (`?`), which groups begin (`+`) and end (`-`), and kills
/// the others at the end. The pipe is closed only when a process that starts has its own environment, since until then
/// the pipe is open in it, too.
const GUARD: &str = r#"
trap '' INT TERM HUP
groups=' '
start=
while read -r what which; do
    case $what in
        '?') start=$which ;;
        +) groups="$groups$which " start= ;;
        -) case $groups in *" $which "*) groups="${groups%% $which *} ${groups#* $which }" ;; esac ;;
    esac
done
if [ -n "$start" ]; then
    for environ in $(grep -lsF "$start" /proc/[0-9]*/environ); do
        group=${environ#/proc/}
        groups="$groups${group%/environ} "
    done
fi
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

static GUARDED: Mutex<Guarded> = Mutex::new(Guarded { groups: BTreeSet::new(), starts: 0, guard: None });

/// The groups of processes of this one, and who sees to them.
struct Guarded {
    groups: BTreeSet<i32>,
    /// The number of starts so far.
    starts: u64,
    /// Started with the first group.
    guard: Option<ChildStdin>,
}

/// A process that a task has started, and those that it has started itself.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) child: Child,
    id: i32,
}

impl Group {
    /// Starts a process, which ends at the latest with this one.
    ///
    /// # Errors
    /// If it cannot be started, or the shell that sees to it.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let mut guarded = guarded();
        let child = guarded.start(command)?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        guarded.groups.insert(id);
        guarded.tell('+', id);
        Ok(Self { child, id })
    }

    /// Returns what kills its processes as long as nobody has waited for the first of them.
    pub(crate) fn killer(&self) -> Killer {
        Killer(self.id)
    }

    /// Kills all processes of the group, and waits for the first of them.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        // As long as it was not waited for, no other group has its number.
        kill(self.id)?;
        self.child.wait().map(drop)
    }
}

/// Kills the processes of a group.
#[derive(Debug)]
pub(crate) struct Killer(i32);

impl Killer {
    pub(crate) fn kill(&self) {
        if let Err(error) = kill(self.0) {
            tracing::warn!(process = self.0, %error, "a process that takes too long cannot be ended");
        }
    }
}

fn kill(group: i32) -> io::Result<()> {
    match killpg(Pid::from_raw(group), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever has waited for it has got its status; everybody else wants nothing of it any more.
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            && let Err(error) = self.kill()
        {
            tracing::warn!(process = self.id, %error, "a process that a task has started cannot be ended");
        }
        let mut guarded = guarded();
        guarded.groups.remove(&self.id);
        guarded.tell('-', self.id);
    }
}

fn guarded() -> MutexGuard<'static, Guarded> {
    GUARDED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guarded {
    /// Starts a process, of whose group the guard does not know yet.
    fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        self.starts += 1;
        // No other process's start, and no later one of this, contains it.
        let value = format!("{}.{}.", process::id(), self.starts);
        command.env(START, &value).process_group(0);
        // So that nothing is left of a process whose guard cannot be started, or was killed since it was last heard.
        for _ in 0..2 {
            self.ensure_guard()?;
            self.tell('?', format_args!("{START}={value}"));
            if self.guard.is_some() {
                break;
            }
        }
        command.spawn().inspect_err(|_| self.tell('?', ""))
    }

    fn ensure_guard(&mut self) -> io::Result<()> {
        if self.guard.is_some() {
            return Ok(());
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", GUARD]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It is not of a start of a process that has started this one.
        shell.env_remove(START);
        // Not of the terminal's group: Ctrl-C is not for it.
        let mut guard = shell.process_group(0).spawn().map_err(|error| {
            let text = format!("`/bin/sh`, which ends processes with this one, cannot be started: {error}");
            io::Error::new(error.kind(), text)
        })?;
        self.guard = guard.stdin.take();
        // It was killed with a guard before, and these had begun by then.
        for group in self.groups.clone() {
            self.tell('+', group);
        }
        Ok(())
    }

    fn tell(&mut self, what: char, which: impl Display) {
        let told = self.guard.as_mut().map(|guard| guard.write_all(format!("{what} {which}\n").as_bytes()));
        if let Some(Err(error)) = told {
            tracing::warn!(%error, "the shell that ends processes with this one is gone");
            // The next group gets another one.
            self.guard = None;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        env, fs,
        os::unix::process::CommandExt as _,
        process::{Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use super::guarded;

    /// Waits until a process is gone.
    pub(crate) fn wait_until_gone(process: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let state = || fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // It may be gone, and nobody has asked how it has ended.
        while !state().is_empty() && !state().contains(") Z ") {
            assert!(Instant::now() < deadline, "process {process} lives: {}", state());
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "the process that has started the other one ends first")]
    fn a_process_whose_starter_is_killed_before_its_guard_hears_of_it_ends() {
        const STARTS: &str = "DATAFLOW_TEST_STARTS_UNTOLD";
        if env::var_os(STARTS).is_some() {
            let mut sleep = Command::new("sleep");
            let child =
                guarded().start(sleep.arg("3600").stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
            println!("started {}", child.id());
            super::kill(0).unwrap();
        }
        let name = "process::tests::a_process_whose_starter_is_killed_before_its_guard_hears_of_it_ends";
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", "--nocapture", name]).env(STARTS, "1");
        // It kills its group, of which neither the guard is nor what it has started.
        let output = again.process_group(0).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let started = said.lines().find_map(|line| line.strip_prefix("started "));
        wait_until_gone(started.unwrap_or_else(|| panic!("nothing was started: {said}")));
    }
}
