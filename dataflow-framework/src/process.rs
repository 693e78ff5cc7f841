//! The processes that tasks start, which end with this one, in whatever way that ends.
//!
//! Each is the first of a group, to which belong those that it starts itself. A process that is killed can do nothing
//! about its groups any more, so a guard does: a shell that hears from a pipe which groups there are, and kills those
//! that are left when the pipe is closed, as the system does in any case.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// What the guard does: it notes which groups begin (`+`) and end (`-`), and kills the others at the end.
const GUARD: &str = r#"
trap '' INT TERM HUP
groups=' '
while read -r what group; do
    case $what in
        +) groups="$groups$group " ;;
        -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

static GUARDED: Mutex<Guarded> = Mutex::new(Guarded { groups: BTreeSet::new(), guard: None });

/// The groups of processes of this one, and who sees to them.
struct Guarded {
    groups: BTreeSet<i32>,
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
        // So that nothing is left of a process whose guard cannot be started.
        let mut guarded = guarded();
        guarded.ensure_guard()?;
        let child = command.process_group(0).spawn()?;
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
    fn ensure_guard(&mut self) -> io::Result<()> {
        if self.guard.is_some() {
            return Ok(());
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", GUARD]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
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

    fn tell(&mut self, what: char, group: i32) {
        let told = self.guard.as_mut().map(|guard| writeln!(guard, "{what} {group}"));
        if let Some(Err(error)) = told {
            tracing::warn!(%error, "the shell that ends processes with this one is gone");
            // The next group gets another one.
            self.guard = None;
        }
    }
}
