//! The parent side of isolated calls: starts the child process and handles its failures.

use std::{
    io::{self, BufReader, PipeReader, Read},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use taskwork_child::{Group, Killer, read_tail, shown};

use super::{GREETING, Request, Response, VARIABLE};
use crate::{
    core::Assignment,
    failure::{Failed, FailureKind},
    file::{Folder, WORK_DIR_VARIABLE},
    ids::Argument,
    node::{Cancellation, LOOK, cancelled, exceeded, time_left},
    size,
    stream::{Broken, receive, receive_value, send, send_value},
    value::Value,
};

/// The maximum time until the greeting of the child.
const GREETING_MAX: Duration = Duration::from_secs(60);

/// The maximum time to wait for the rest of the output of a dead child.
const SAID_LATE_MAX: Duration = Duration::from_millis(200);

/// The file of this program, even if it was replaced on the disk.
const PROGRAM: &str = "/proc/self/exe";

/// Runs the task of a call in a separate process, which is killed when the [time is up](time_left) or the call is
/// cancelled.
pub(crate) fn run(assignment: &Assignment, inputs: &[Value]) -> Result<Vec<Value>, Failed> {
    let (hears, says) = io::pipe().map_err(Failed::of_node)?;
    // The child has its own directory, since a killed process removes nothing.
    let folder = Folder::new().map_err(Failed::of_node)?;
    let mut command = Command::new(PROGRAM);
    command
        .env(VARIABLE, std::process::id().to_string())
        .env(WORK_DIR_VARIABLE, folder.path())
        // The last lines of its output should be the reason, without a backtrace.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(says);
    let group = Group::start(&mut command);
    drop(command);
    let mut group = group
        .map_err(|error| Failed::of_node(format!("cannot start the process of an isolated call: {error}")))?;
    let listener = Listener::start(hears);
    let guard = Guard::start(group.killer(), time_left());
    let asked = ask(&mut group, &guard, assignment, inputs);
    let was_killed = guard.end();
    let broken = match asked {
        Ok(written) => return written,
        Err(Broken::Here(failed)) => return Err(failed),
        Err(Broken::Pipe(error)) => error,
    };
    match (was_killed, assignment.manner.timeout) {
        (Some(Late::Call), Some(timeout)) => return Err(exceeded(timeout)),
        (Some(Late::Cancelled), _) => return Err(cancelled()),
        (Some(_), _) => {
            return Err(not_served("it has not sent the greeting in time"));
        }
        (None, _) => {}
    }
    if broken.kind() == io::ErrorKind::InvalidInput {
        group.kill().map_err(Failed::of_node)?;
        return Err(not_served("it has sent a wrong greeting"));
    }
    let status = group.child.wait().map_err(Failed::of_node)?;
    let said = listener.end();
    if broken.kind() == io::ErrorKind::NotConnected {
        return Err(not_served(&format!("it has exited, {status}{said}")));
    }
    let limit = assignment.manner.memory_max.map_or_else(String::new, |bytes| {
        format!(" (it may take {} of memory: `memory_max`)", size::shown(bytes))
    });
    Err(Failed::of_kind(
        FailureKind::Crash,
        format!("its process has exited without a reply: {status}{limit}{said}"),
    ))
}

/// Returns the failure of a program that does not serve isolated calls, with the remedy.
fn not_served(why: &str) -> Failed {
    Failed::of_runtime(format!(
        "it is isolated, but the process that was started for it does not run it ({why}): the `main` of the program has \
         to start with `dataflow_framework::cli::main`, or with `dataflow_framework::serve_isolated`"
    ))
}

/// Sends the call, and returns its outcome.
fn ask(
    group: &mut Group,
    guard: &Guard,
    assignment: &Assignment,
    inputs: &[Value],
) -> Result<Result<Vec<Value>, Failed>, Broken> {
    let mut to = group.child.stdin.take().expect("it is a pipe");
    let mut from = BufReader::new(group.child.stdout.take().expect("it is a pipe"));
    let mut greeting = [0; GREETING.len()];
    from.read_exact(&mut greeting).map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?;
    if greeting != GREETING {
        return Err(Broken::Pipe(io::ErrorKind::InvalidInput.into()));
    }
    guard.on_greeted();
    let left = time_left().map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    let request = Request {
        module: assignment.task().module.to_owned(),
        name: assignment.task().name.to_owned(),
        arguments: assignment.arguments.to_vec(),
        inputs: inputs.len(),
        left_ms: left,
        memory_max: assignment.manner.memory_max,
        once_token: assignment.manner.once_token,
        is_cached: assignment.manner.is_cached,
    };
    send(&mut to, &request)?;
    let versions = assignment.arguments.iter().flat_map(Argument::versions);
    for (value, version) in inputs.iter().zip(versions) {
        send_value(&mut to, value).map_err(|broken| match broken {
            Broken::Here(failed) => Broken::Here(failed.of_version(*version)),
            pipe @ Broken::Pipe(_) => pipe,
        })?;
    }
    Ok(match receive(&mut from)? {
        Response::Failed { reason, kind, is_of_node } => {
            let failed = Failed::of_kind(kind, reason);
            Err(if is_of_node { failed.in_trouble() } else { failed })
        }
        Response::Written(versions) => {
            let written = (0..versions).map(|_| receive_value(&mut from));
            Ok(written.collect::<Result<_, _>>()?)
        }
    })
}

/// Reads the standard error of the child.
struct Listener(mpsc::Receiver<Vec<u8>>);

impl Listener {
    fn start(from: PipeReader) -> Self {
        let (tell, told) = mpsc::channel();
        let listen = move || drop(tell.send(read_tail(from)));
        if let Err(error) = thread::Builder::new().name("listener".to_owned()).spawn(listen) {
            tracing::warn!(%error, "cannot start the thread that reads the output of an isolated call");
        }
        Self(told)
    }

    /// Returns the end of the output, formatted for messages.
    fn end(self) -> String {
        shown(&self.0.recv_timeout(SAID_LATE_MAX).unwrap_or_default())
    }
}

/// Kills a child that takes too long, or whose call is cancelled.
struct Guard {
    tell: Sender<()>,
    thread: Option<JoinHandle<Option<Late>>>,
}

/// The part that has taken too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    Greeting,
    Call,
    /// None: the call is cancelled.
    Cancelled,
}

impl Guard {
    fn start(killer: Killer, left: Option<Duration>) -> Self {
        let (tell, told) = mpsc::channel::<()>();
        let started = Instant::now();
        let cancellation = Cancellation::current();
        let watch = move || {
            let mut is_greeted = false;
            loop {
                let passed = started.elapsed();
                let late = if cancellation.as_ref().is_some_and(|cancellation| cancellation.is_cancelled()) {
                    Some(Late::Cancelled)
                } else if left.is_some_and(|left| passed >= left) {
                    Some(Late::Call)
                } else if !is_greeted && passed >= GREETING_MAX {
                    Some(Late::Greeting)
                } else {
                    None
                };
                if late.is_some() {
                    killer.kill();
                    return late;
                }
                match told.recv_timeout(left.map_or(LOOK, |left| LOOK.min(left.saturating_sub(passed)))) {
                    Err(RecvTimeoutError::Disconnected) => return None,
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) => is_greeted = true,
                }
            }
        };
        let thread = thread::Builder::new().name("guard".to_owned()).spawn(watch);
        let thread = thread.inspect_err(|error| {
            tracing::warn!(%error, "cannot start the thread that enforces the timeout of an isolated call");
        });
        Self { tell, thread: thread.ok() }
    }

    fn on_greeted(&self) {
        // If the guard has killed the process, the caller notices that.
        let _ = self.tell.send(());
    }

    /// Returns the part that has taken too long, if the process was killed.
    fn end(self) -> Option<Late> {
        drop(self.tell);
        self.thread.and_then(|thread| thread.join().ok().flatten())
    }
}
