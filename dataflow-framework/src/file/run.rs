//! External programs as tasks.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, ErrorKind, PipeReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use taskwork_child::{Group, read_tail, shown};
use wait_timeout::ChildExt as _;

use super::{
    File, check, is_single, refused,
    sandbox::{Access, Sandbox},
    trouble,
};
use crate::{is_cancelled, node::LOOK, time_left};

/// The maximum part of a command that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 500;

/// The maximum number of attempts to start a program that is being written, and the pause between them.
const STARTS_MAX: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The maximum time to wait for the rest of the output of a killed program.
const SAID_LATE_MAX: Duration = Duration::from_millis(100);

/// A run of an external program on files, inside a task.
///
/// The program runs in a new directory, which contains only the files among its arguments, under their names. So it may
/// create, replace and remove any file there, and programs that run at the same time do not conflict. Its arguments are
/// read-only, and usually links, so that they cost no copy: [`arg_to_change`](Self::arg_to_change) adds one that the program
/// writes to. A process that may write to read-only files, such as one of root, gives copies instead. The program inherits the
/// environment of this process. Its standard input is empty unless [`stdin_from`](Self::stdin_from) sets it. Files
/// that are not returned as a [`File`] are removed. The program is killed when the call exceeds its timeout
/// ([`Options::timeout`](crate::Options::timeout)) or is [cancelled](crate::Group::cancel), or when the process that has started it exits for any reason. Its
/// child processes are killed with it, unless they have left its process group.
///
/// # Examples
/// ```
/// use std::io;
/// use dataflow_framework::{File, Run, task};
///
/// /// Sorts the lines of two files into one.
/// #[task]
/// fn sort(options: String, first: &File, second: &File) -> io::Result<File> {
///     Run::new("sort").words(&options).arg(first).arg(second).stdout_to("sorted")
/// }
///
/// let (first, second) = (File::new("first", "2\n10\n")?, File::new("second", "3\n")?);
/// let sorted = sort::now("-n".to_owned(), &first, &second)?;
/// assert_eq!(sorted.read_to_string()?, "2\n3\n10\n");
///
/// let error = sort::now("--no-such-option".to_owned(), &first, &second).unwrap_err().to_string();
/// assert!(error.contains("`sort --no-such-option first second` has failed: exit status: 2"), "{error}");
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it runs when its results are asked for"]
pub struct Run<'a> {
    program: OsString,
    arguments: Vec<Argument<'a>>,
    /// Files at paths in the directory of the program.
    inputs: Vec<(String, &'a File)>,
    stdin: Option<&'a File>,
    environment: Vec<(OsString, OsString)>,
}

#[derive(Debug)]
enum Argument<'a> {
    Word(OsString),
    File(&'a File, Access),
}

impl<'a> Run<'a> {
    /// Describes a run of a program. A name without `/` is searched in the directories of `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        Self { program, arguments: Vec::new(), inputs: Vec::new(), stdin: None, environment: Vec::new() }
    }

    /// Adds an argument.
    pub fn word(mut self, word: impl AsRef<OsStr>) -> Self {
        self.arguments.push(Argument::Word(word.as_ref().to_owned()));
        self
    }

    /// Adds each word of a text as an argument. Words are separated by white space; quotes and variables are not
    /// interpreted.
    pub fn words(mut self, words: &str) -> Self {
        let words = words.split_whitespace().map(|word| Argument::Word(word.into()));
        self.arguments.extend(words);
        self
    }

    /// Adds a file as an argument. The program finds it under its name, and can only read it. If several files have the
    /// same name, all but the first are placed in separate directories.
    pub fn arg(mut self, file: &'a File) -> Self {
        self.arguments.push(Argument::File(file, Access::Read));
        self
    }

    /// Adds a file as [`arg`](Self::arg) does, but as a copy that the program may write to. With its name,
    /// [`file`](Self::file) returns the changed copy.
    pub fn arg_to_change(mut self, file: &'a File) -> Self {
        self.arguments.push(Argument::File(file, Access::Change));
        self
    }

    /// Adds a file that is not an argument. The program finds it at this path, relative to its directory, and can only
    /// read it, such as `samples/a.txt`. A path that is not relative, or contains `..`, fails the run.
    pub fn input(mut self, path: impl Into<String>, file: &'a File) -> Self {
        self.inputs.push((path.into(), file));
        self
    }

    /// Sets the file to read as standard input.
    pub fn stdin_from(mut self, file: &'a File) -> Self {
        self.stdin = Some(file);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs it, and returns its standard output as a file of this name.
    ///
    /// # Errors
    /// If the program is missing or fails: the error contains the command, the exit status, and the last lines of its
    /// standard error. If an argument cannot be read, or the name is not valid for a file ([`File::new`]).
    pub fn stdout_to(self, name: &str) -> io::Result<File> {
        let file = File::nothing(name)?;
        let stdout = fs::File::create_new(file.path()).map_err(|error| file.cannot("created", &error))?;
        self.run(Some(stdout), &[])?;
        Ok(file)
    }

    /// Runs it, and returns the file that it has written under this name. Its standard output is discarded.
    ///
    /// # Errors
    /// If there is no such file; and as [`stdout_to`](Self::stdout_to), where the last lines include the standard
    /// output.
    pub fn file(self, name: &str) -> io::Result<File> {
        let [file] = self.files([name])?;
        Ok(file)
    }

    /// Runs it, and returns the files that it has written under these names. Its standard output is discarded.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn files<const N: usize>(self, names: [&str; N]) -> io::Result<[File; N]> {
        names.iter().try_for_each(|name| check(name))?;
        let files = self.outputs(&names)?;
        files.try_into().map_err(|_| refused("a name has no file"))
    }

    /// Runs it, and returns the files that it has written at these paths, relative to its directory. Their folders exist
    /// before it starts. Its standard output is discarded.
    ///
    /// # Errors
    /// As [`file`](Self::file), or if a path is not relative or contains `..`.
    pub fn outputs(self, paths: &[impl AsRef<str>]) -> io::Result<Vec<File>> {
        let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        paths.iter().try_for_each(|path| check_path(path))?;
        self.run(None, &paths)?.files(&paths)
    }

    /// Runs it. Without a file for its standard output, that is captured together with its standard error.
    fn run(self, stdout: Option<fs::File>, outputs: &[&str]) -> io::Result<Ran<'a>> {
        let mut sandbox = Sandbox::new()?;
        for (path, file) in &self.inputs {
            check_path(path)?;
            sandbox.put_at(path, file)?;
        }
        outputs.iter().try_for_each(|path| sandbox.create_folder_of(path))?;
        let program = located(&self.program)?;
        let mut command = Command::new(&program);
        for argument in &self.arguments {
            match argument {
                Argument::Word(word) => command.arg(word),
                Argument::File(file, access) => command.arg(sandbox.put(file, *access)?),
            };
        }
        let shown_command = described(&command);
        let (hears, says) = io::pipe()?;
        let stdin = self.stdin.map(|file| file.reader().map(|reader| reader.into_inner().into()));
        command
            .current_dir(sandbox.path())
            .envs(self.environment)
            .stdin(stdin.transpose()?.unwrap_or_else(Stdio::null))
            .stdout(match stdout {
                Some(file) => Stdio::from(file),
                None => says.try_clone()?.into(),
            })
            .stderr(says);
        let started = start(&mut command);
        // The command holds a write end of the pipe, which would keep the reader waiting.
        drop(command);
        let mut group = started.map_err(|error| not_started(&program, &shown_command, &error))?;
        let (status, said) = wait_for(&mut group, hears, &shown_command)?;
        if !status.success() {
            return Err(io::Error::other(format!("{shown_command} has failed: {status}{}", shown(&said))));
        }
        if let Some(file) = sandbox.changed() {
            return Err(io::Error::other(format!(
                "{shown_command} has changed its input `{}`, which other tasks read, too: add it by `Run::arg_to_change`",
                file.name()
            )));
        }
        Ok(Ran { sandbox, command: shown_command, said })
    }
}

/// A completed run of a program.
struct Ran<'a> {
    sandbox: Sandbox<'a>,
    command: String,
    /// The end of its output.
    said: Vec<u8>,
}

impl Ran<'_> {
    /// Returns the files that it has written under these names.
    fn files(&self, names: &[&str]) -> io::Result<Vec<File>> {
        let path = |name: &str| self.sandbox.path().join(name);
        // Links first, as long as their targets exist.
        let mut order: Vec<_> = names.iter().enumerate().collect();
        order.sort_by_key(|(_, name)| is_single(&path(name)).unwrap_or(true));
        let mut files = Vec::new();
        for (place, name) in order {
            let last = name.rsplit('/').next().unwrap_or(name);
            let file = File::moved(&path(name), last).map_err(|error| {
                let Self { command, said, .. } = self;
                let text = format!("{command} has not written the file `{name}`: {error}{}", shown(said));
                io::Error::new(error.kind(), text)
            });
            files.push((place, file?));
        }
        files.sort_by_key(|(place, _)| *place);
        Ok(files.into_iter().map(|(_, file)| file).collect())
    }
}

/// Refuses a path that is not relative to the directory of the program, or leads out of it.
fn check_path(path: &str) -> io::Result<()> {
    path.split('/').try_for_each(check)
}

/// Waits for the program until the time is up or the call is cancelled, and then kills it with its process group. Returns
/// its exit status and the end of its output.
fn wait_for(group: &mut Group, hears: PipeReader, command: &str) -> io::Result<(ExitStatus, Vec<u8>)> {
    let (tell, told) = mpsc::channel();
    // A child of the program may keep its write end of the pipe open.
    thread::Builder::new().name("listener".to_owned()).spawn(move || {
        let said = read_tail(hears);
        // There is no receiver if the program was killed.
        drop(tell.send(said));
    })?;
    let mut status = None;
    let said = loop {
        let look = time_left().map_or(LOOK, |left| left.min(LOOK));
        if is_cancelled() || look.is_zero() {
            break None;
        }
        match status {
            None => status = group.child.wait_timeout(look)?,
            Some(_) => match told.recv_timeout(look) {
                Err(RecvTimeoutError::Timeout) => {}
                said => break said.ok(),
            },
        }
    };
    if status.is_none() {
        group.kill()?;
    }
    let said = said.unwrap_or_else(|| told.recv_timeout(SAID_LATE_MAX).unwrap_or_default());
    if let Some(status) = status {
        return Ok((status, said));
    }
    let why = if is_cancelled() { "was cancelled" } else { "exceeded its timeout" };
    let text = format!("{command} was killed because the call {why}{}", shown(&said));
    Err(io::Error::new(ErrorKind::TimedOut, text))
}

/// Returns a path to the program that stays valid in another current directory.
fn located(program: &OsStr) -> io::Result<PathBuf> {
    let path = Path::new(program);
    if path.components().nth(1).is_some() { std::path::absolute(path) } else { Ok(path.to_owned()) }
}

/// Starts a program. This fails while any process has the program file open for writing, and a process that this one
/// forks briefly inherits all files that are open here.
fn start(command: &mut Command) -> io::Result<Group> {
    let mut starts = 1;
    loop {
        match Group::start(command) {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && starts < STARTS_MAX => {
                starts += 1;
                thread::sleep(BUSY_PAUSE);
            }
            started => return started,
        }
    }
}

fn not_started(program: &Path, command: &str, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        ErrorKind::NotFound if program.components().nth(1).is_none() => {
            "it is not in the directories of PATH: install it on every node, or give its path"
        }
        ErrorKind::NotFound => {
            "there is no such file, or the interpreter in its first line is missing: a program has to be \
                                on every node"
        }
        ErrorKind::PermissionDenied => "it is not a program that may be executed",
        _ => "the system refuses it",
    };
    // It may exist on another node.
    trouble::note(error);
    let program = program.display();
    io::Error::new(
        error.kind(),
        format!("the program `{program}` cannot be started: {why} ({error}); by {command}"),
    )
}

/// Formats a command for messages.
fn described(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| {
        let word = word.to_string_lossy();
        let is_plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c.is_control());
        if is_plain { word.into_owned() } else { format!("{word:?}") }
    });
    let command = words.collect::<Vec<_>>().join(" ");
    match command.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("`{} …`", &command[..end]),
        None => format!("`{command}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::{File, Run};

    #[test]
    fn inputs_and_outputs_are_at_their_paths_in_the_directory() {
        let [one, two] = ["one", "two"].map(|text| File::new("same", text).expect("it can be made"));
        let script = "cat in/1/a in/b > made/deep/all; printf %s \"$1\" > name";
        let run = Run::new("sh").word("-c").word(script).word("sh").arg(&two);
        let files = run.input("in/1/a", &one).input("in/b", &two).outputs(&["made/deep/all", "name"]);
        let files = files.expect("it succeeds");
        assert_eq!(files[0].read_to_string().expect("it is there"), "onetwo");
        assert_eq!(files[0].name(), "all");
        assert_eq!(files[1].read_to_string().expect("it is there"), "same");
    }

    #[test]
    fn paths_that_lead_out_of_the_directory_are_refused() {
        let file = File::new("file", "").expect("it can be made");
        for path in ["/tmp/escaped", "../escaped", "in/../../escaped", "in//a", "in/", "."] {
            let read = Run::new("true").input(path, &file).outputs(&["out"]).expect_err(path);
            let written = Run::new("true").outputs(&[path]).expect_err(path);
            for error in [read, written] {
                assert!(error.to_string().contains("cannot be the name of a file"), "{error}");
            }
        }
    }
}
