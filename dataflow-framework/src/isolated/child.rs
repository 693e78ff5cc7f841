//! The child process that runs a call for a node.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::fd::AsFd as _,
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use nix::{
    sys::resource::{Resource, setrlimit},
    unistd::dup2_stdout,
};
use tokio::time::Instant;

use super::{GREETING, Request, Response, is_child};
use crate::{
    core::{Assignment, Manner, Mark, Work},
    failure::{Failed, Trouble},
    invocation::Put,
    node::{CACHED_CALLS, Context, run_here},
    program::{CallsOfTasks, Flow},
    stream::{Broken, receive, receive_value, send, send_value},
    task::{TaskDef, Tasks},
    value::Value,
};

/// The exit status of a child that could not run its call; its standard error is shown.
const BROKEN: i32 = 70;

/// Runs a call if this process was started for that, and ends it then; otherwise returns at once. To be called at the
/// very beginning of `main` by programs with [isolated](crate::Options::isolated) tasks that do not begin with
/// [`cli::main`](crate::cli::main), which does so itself: isolated calls run in a process of the same program.
///
/// `tasks` are those of the program ([`tasks!`](crate::tasks)).
///
/// # Examples
/// ```no_run
/// use dataflow_framework::{Failure, Workflow, serve_isolated, task, tasks};
///
/// #[task(isolated, timeout = "10 s", memory_max = "1 GiB")]
/// fn risky(number: u64) -> u64 {
///     if number == 7 { std::process::abort() } else { number }
/// }
///
/// fn main() {
///     serve_isolated(tasks![risky]);
///     let workflow = Workflow::new(tasks![risky]).expect("there is one");
///     let failure = workflow.run(|| Ok::<_, Failure>(*risky(7).get()?)).expect_err("it aborts");
///     println!("{failure}");
/// }
/// ```
pub fn serve_isolated(tasks: impl IntoIterator<Item = &'static TaskDef>) {
    if is_child() {
        process::exit(run(tasks));
    }
}

/// Runs the call, and returns the exit status.
fn run(tasks: impl IntoIterator<Item = &'static TaskDef>) -> i32 {
    let served = Tasks::new(tasks).map_err(io::Error::other).and_then(|tasks| serve(&tasks));
    match served {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("the process of an isolated call cannot continue: {error}");
            BROKEN
        }
    }
}

fn serve(tasks: &Tasks) -> io::Result<()> {
    let mut answer = fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    dup2_stdout(io::stderr())?;
    answer.write_all(GREETING)?;
    let mut stdin = io::stdin().lock();
    let request: Request = receive(&mut stdin).map_err(broken)?;
    let inputs = (0..request.inputs).map(|_| receive_value(&mut stdin)).collect::<Result<Vec<_>, _>>();
    let inputs = inputs.map_err(broken)?;
    drop(stdin);
    ends_with_its_parent()?;
    if let Some(bytes) = request.memory_max {
        limit_memory(bytes)?;
    }
    let written = run_request(tasks, request, inputs);
    let response = match &written {
        Ok(written) => Response::Written(written.len()),
        Err(Failed { reason, kind, trouble }) => {
            let is_of_node = *trouble != Trouble::Task;
            Response::Failed { reason: reason.clone(), kind: *kind, is_of_node }
        }
    };
    send(&mut answer, &response).map_err(broken)?;
    for value in written.iter().flatten() {
        send_value(&mut answer, value).map_err(broken)?;
    }
    Ok(())
}

fn run_request(tasks: &Tasks, request: Request, inputs: Vec<Value>) -> Result<Vec<Value>, Failed> {
    let Request { module, name, arguments, left_ms, once_token, is_cached, .. } = request;
    let task = tasks.get(&module, &name).ok_or_else(|| {
        Failed::of_runtime(format!(
            "{module}::{name} is not in the table of tasks with which its process was started"
        ))
    })?;
    let assignment = Assignment {
        call: 0,
        work: Work::Task(task),
        mark: Mark::default(),
        tries: 0,
        arguments: Arc::from(arguments),
        in_place: Vec::new(),
        manner: Manner { once_token, ..Manner::default() },
        elsewhere: Vec::new(),
    };
    let deadline = left_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    let context = Context { deadline, once_token, ..Context::default() };
    // This process has no coordinator, so the calls that the task makes run here immediately.
    let flow = Flow::sequential();
    let _entered = flow.enter();
    let written = run_here(&assignment, inputs, &context, &CallsOfTasks)?;
    flow.wait_for_all().map_err(|failure| Failed::of(failure.to_string()))?;
    if is_cached && flow.has_steps() {
        return Err(Failed::of_runtime(CACHED_CALLS));
    }
    let value = |put| match put {
        Put::Value(value) => value,
        Put::HandedOn(_) => unreachable!("its calls are not those of the graph"),
    };
    Ok(written.into_iter().map(value).collect())
}

/// Makes this process exit when its parent is gone: otherwise a task that never returns would run forever.
fn ends_with_its_parent() -> io::Result<()> {
    let wait = || {
        // Nothing more is sent: this returns when the pipe is closed.
        let _ = io::stdin().lock().read(&mut [0]);
        process::exit(BROKEN);
    };
    thread::Builder::new().name("parent".to_owned()).spawn(wait).map(drop)
}

/// Limits the memory that this process may take in addition to its current memory.
fn limit_memory(bytes: u64) -> io::Result<()> {
    let taken = fs::read_to_string("/proc/self/status")?;
    let line = taken.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let taken = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let taken = taken.ok_or_else(|| io::Error::other("the memory use of this process is unknown"))?;
    let most = (taken << 10).saturating_add(bytes);
    setrlimit(Resource::RLIMIT_AS, most, most)?;
    Ok(())
}

fn broken(broken: Broken) -> io::Error {
    match broken {
        Broken::Pipe(error) => error,
        Broken::Here(failed) => io::Error::other(failed.reason),
    }
}
