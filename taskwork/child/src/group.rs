//! The processes that tasks start. They are killed when this process exits, for any reason.
//!
//! Each one is the leader of a process group, to which its children belong. A process that is killed cannot kill its
//! groups, so a guard does it: a shell that reads the list of groups from a pipe, and kills the remaining groups when
//! the pipe is closed, which the system does even for a killed process. A group that is just being started is found,
//! on systems with `/proc`, by a variable in its environment; the guard receives the value before the start.

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

/// The variable that identifies the processes of one start.
const START: &str = "TASKWORK_START";

/// The guard. It records the pending start (`?`) and the groups that are started (`+`) and ended (`-`), and kills the
/// remaining groups when the pipe is closed. A child holds the pipe open until it has its own environment, so the
/// guard finds that environment when the pipe is closed.
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

/// The process groups started by this process, and their guard.
struct Guarded {
    groups: BTreeSet<i32>,
    /// The number of starts so far.
    starts: u64,
    /// Started with the first group.
    guard: Option<ChildStdin>,
}

/// A process that a task has started, with its children.
#[derive(Debug)]
pub struct Group {
    /// The leader of the group.
    pub child: Child,
    id: i32,
}

impl Group {
    /// Starts a process, which is killed at the latest when this one exits.
    ///
    /// # Errors
    /// If the process or the guard cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut guarded = guarded();
        let child = guarded.start(command)?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        guarded.groups.insert(id);
        guarded.tell('+', id);
        Ok(Self { child, id })
    }

    /// Returns a handle that kills the group. It is valid until the leader was waited for.
    pub fn killer(&self) -> Killer {
        Killer(self.id)
    }

    /// Kills all processes of the group, and waits for the leader.
    ///
    /// # Errors
    /// If the system refuses to kill them.
    pub fn kill(&mut self) -> io::Result<()> {
        // No other group can have this id before the leader was waited for.
        kill(self.id)?;
        self.child.wait().map(drop)
    }
}

/// Kills the processes of a group.
#[derive(Debug, Clone)]
pub struct Killer(i32);

impl Killer {
    /// Kills all processes of the group. An error is logged.
    pub fn kill(&self) {
        if let Err(error) = kill(self.0) {
            tracing::warn!(process = self.0, %error, "cannot kill a process that has exceeded its timeout");
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
        // If the leader was waited for, its status is known; otherwise the group is no longer needed.
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            && let Err(error) = self.kill()
        {
            tracing::warn!(process = self.id, %error, "cannot kill a process that a task has started");
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
    /// Starts a process. The guard does not know its group yet.
    fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        self.starts += 1;
        // The trailing dot prevents one value from being a prefix of another.
        let value = format!("{}.{}.", process::id(), self.starts);
        command.env(START, &value).process_group(0);
        // A process is not started without a guard. If the guard was killed, the first write fails and a new guard is
        // started.
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
        // The guard must not inherit the variable of a start by an outer process.
        shell.env_remove(START);
        // A group of its own, so that Ctrl-C in the terminal does not reach the guard.
        let mut guard = shell.process_group(0).spawn().map_err(|error| {
            let text = format!(
                "cannot start `/bin/sh`, which kills the processes of tasks when this one exits: {error}"
            );
            io::Error::new(error.kind(), text)
        })?;
        self.guard = guard.stdin.take();
        // An earlier guard was killed, and these groups were started before that.
        for group in self.groups.clone() {
            self.tell('+', group);
        }
        Ok(())
    }

    fn tell(&mut self, what: char, which: impl Display) {
        let told = self.guard.as_mut().map(|guard| guard.write_all(format!("{what} {which}\n").as_bytes()));
        if let Some(Err(error)) = told {
            tracing::warn!(%error, "the shell that kills the processes of tasks when this one exits is gone");
            // The next start starts another guard.
            self.guard = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::process::CommandExt as _,
        process::{Command, Stdio},
    };

    use super::guarded;
    use crate::testing::wait_until_gone;

    #[test]
    #[expect(clippy::zombie_processes, reason = "the process that has started the other one is killed first")]
    fn process_is_killed_when_starter_dies_before_guard_knows_group() {
        const STARTS: &str = "TASKWORK_TEST_STARTS_UNTOLD";
        if env::var_os(STARTS).is_some() {
            let mut sleep = Command::new("sleep");
            let child =
                guarded().start(sleep.arg("3600").stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
            println!("started {}", child.id());
            super::kill(0).unwrap();
        }
        let name = "group::tests::process_is_killed_when_starter_dies_before_guard_knows_group";
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", "--nocapture", name]).env(STARTS, "1");
        // It kills its own process group, which contains neither the guard nor the started process.
        let output = again.process_group(0).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let started = said.lines().find_map(|line| line.strip_prefix("started "));
        wait_until_gone(started.unwrap_or_else(|| panic!("nothing was started: {said}")));
    }
}
