//! Tasks in the form that the runtime uses, and the table of a program's tasks.

use std::{collections::BTreeMap, fmt, pin::Pin, ptr};

use thiserror::Error;

use crate::{
    failure::Failed,
    file,
    invocation::{Invocation, Outputs},
    options::Options,
    task_options::TaskOptions,
};

/// Runs a call: takes its arguments and puts its outputs.
pub(crate) type RunTask = fn(&mut Invocation<'_>) -> Result<(), Failed>;

/// The running call of an `async` task.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Outputs, Failed>> + Send>>;

/// The body of a task.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// Runs a call on a worker.
    Thread(RunTask),
    /// Takes the arguments of a call, and returns its future, which occupies no worker.
    Future(fn(&mut Invocation<'_>) -> Result<CallFuture, Failed>),
}

impl Body {
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Thread(one), Self::Thread(other)) => ptr::fn_addr_eq(one, other),
            (Self::Future(one), Self::Future(other)) => ptr::fn_addr_eq(one, other),
            _ => false,
        }
    }
}

/// The definition of a task, generated from a function by the attribute [`task`](crate::task).
#[derive(Clone, Copy)]
pub struct TaskDef {
    /// The name of the function.
    pub name: &'static str,
    /// The path of its module.
    pub module: &'static str,
    /// The types of its parameters and results.
    pub signature: &'static str,
    /// The hash of its code and its version, by which the cache detects that the task was [edited](Options::cached).
    pub code: &'static str,
    /// The options of its calls.
    pub options: Options,
    /// Runs a call.
    #[doc(hidden)]
    pub run: Body,
    /// Computes the outputs of a call whose failure is ignored.
    #[doc(hidden)]
    pub default_outputs: Option<RunTask>,
}

impl TaskDef {
    /// Returns whether its calls are futures, which occupy no worker.
    pub(crate) fn is_future(&self) -> bool {
        matches!(self.run, Body::Future(_))
    }
}

impl fmt::Debug for TaskDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskDef")
            .field(&format_args!("{}::{}{}", self.module, self.name, self.signature))
            .finish()
    }
}

/// Implemented by the type that [`task`](crate::task) makes of a function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is listed as a task of the program, but is not a task",
    label = "add the attribute `#[task]` to this function"
)]
pub trait IsTask {
    /// The task.
    const TASK: &'static TaskDef;
}

/// A task for tests in which no call is run.
#[cfg(test)]
pub(crate) const NOT_RUN: TaskDef = TaskDef {
    name: "task",
    module: "tests",
    signature: "",
    code: "",
    options: Options::DEFAULT,
    run: Body::Thread(|_| unreachable!("calls are not run here")),
    default_outputs: None,
};

/// The tasks of a program. See [`tasks!`](crate::tasks).
#[derive(Debug, Default)]
pub struct Tasks {
    /// The tasks by module and name.
    by_name: BTreeMap<(&'static str, &'static str), &'static TaskDef>,
    changes: TaskOptions,
}

/// Two tasks have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there are two tasks {module}::{name}: a task is found by its name, so rename one of them")]
pub struct DuplicateTaskName {
    /// The path of the module.
    pub module: &'static str,
    /// The name of both tasks.
    pub name: &'static str,
}

impl Tasks {
    /// Creates a table with these and the built-in tasks.
    ///
    /// # Errors
    /// If two different tasks of a module have the same name. The same task may be listed twice.
    pub fn new(tasks: impl IntoIterator<Item = &'static TaskDef>) -> Result<Self, DuplicateTaskName> {
        let mut by_name = BTreeMap::new();
        for task in tasks.into_iter().chain(file::TASKS) {
            let TaskDef { name, module, signature, run, .. } = *task;
            if let Some(other) = by_name.insert((module, name), task)
                && (other.signature != signature || !other.run.is_same(run))
            {
                return Err(DuplicateTaskName { module, name });
            }
        }
        Ok(Self { by_name, changes: TaskOptions::default() })
    }

    /// Changes options of tasks: `align.retry=5`.
    ///
    /// # Errors
    /// Fails if there is no such task or option, or the value is invalid.
    pub(crate) fn change(&mut self, given: &[String]) -> Result<(), String> {
        let tasks: Vec<_> = self.by_name.values().copied().collect();
        self.changes = TaskOptions::parse(given.iter().map(String::as_str), &tasks)?;
        Ok(())
    }

    /// Returns the options of a call, as the user of the program has changed them.
    pub(crate) fn options(&self, task: &TaskDef, options: Options) -> Options {
        self.changes.of(task, options)
    }

    /// Returns the number of a task in the table; `None` if it is not listed.
    pub(crate) fn number(&self, task: &TaskDef) -> Option<u32> {
        // A program has few tasks.
        let position =
            self.by_name.keys().position(|(module, name)| (*module, *name) == (task.module, task.name));
        position.and_then(|position| u32::try_from(position).ok())
    }

    pub(crate) fn numbered(&self, number: u32) -> Option<&'static TaskDef> {
        self.by_name.values().nth(usize::try_from(number).ok()?).copied()
    }

    /// Returns the task with this name.
    pub(crate) fn get(&self, module: &str, name: &str) -> Option<&'static TaskDef> {
        let mut tasks = self.by_name.values();
        // A program has few tasks.
        tasks.find(|task| task.module == module && task.name == name).copied()
    }
}

/// Lists the tasks of a program, by the names of their functions, for [`Workflow::new`](crate::Workflow::new); or
/// makes tasks from functions defined elsewhere, such as in a library that does not use this crate.
///
/// # Examples
/// ```
/// use dataflow_framework::{Data, Workflow, tasks};
///
/// mod linear {
///     # #![allow(clippy::ptr_arg)]
///     pub fn scale(vector: &mut Vec<f64>, by: f64) {
///         vector.iter_mut().for_each(|x| *x *= by);
///     }
///
///     pub fn sum(vector: &Vec<f64>) -> f64 {
///         vector.iter().sum()
///     }
/// }
///
/// tasks! {
///     /// Scales a vector.
///     fn scale(vector: &mut Vec<f64>, by: f64) = linear::scale;
///     fn sum(vector: &Vec<f64>) -> f64 = linear::sum { retry = 3, priority = 1 };
/// }
///
/// let sum = Workflow::new(tasks![scale, sum])?.run(|| {
///     let mut vector = Data::new(vec![1.0, 2.0]);
///     scale(&mut vector, 10.0);
///     sum(&vector).get().map(|sum| *sum)
/// })?;
/// assert_eq!(sum, 30.0);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
#[macro_export]
macro_rules! tasks {
    ($(
        $(#[$attribute:meta])*
        $visible:vis fn $name:ident($($parameter:ident: $of:ty),* $(,)?) $(-> $result:ty)? = $function:path
        $({ $($options:tt)* })?;
    )+) => {
        $(
            #[$crate::task($($($options)*)?)]
            $(#[$attribute])*
            $visible fn $name($($parameter: $of),*) $(-> $result)? {
                $function($($parameter),*)
            }
        )+
    };
    ($($task:path),* $(,)?) => {
        [$(&<$task>::TASK),*]
    };
}
