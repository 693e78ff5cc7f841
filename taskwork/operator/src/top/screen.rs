//! The terminal: takes it over, restores it in all cases, and receives its keys and the signals.

use std::{
    io::{self, BufWriter, Stdout, Write as _},
    mem::ManuallyDrop,
    panic, process,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use nix::sys::signal::{Signal, raise};
use ratatui::{
    Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor,
        event::{self, Event, KeyEvent},
        execute, terminal,
    },
};
use taskwork_cli::Failure;
use tokio::{
    signal::unix::{self, SignalKind, signal},
    sync::mpsc,
};

/// The time after which the process exits although its terminal accepts no output; then nothing can be restored.
const STUCK: Duration = Duration::from_secs(2);
/// The maximum number of queued inputs.
const INPUTS_MAX: usize = 64;
/// The size of the output buffer, in bytes: a picture is written at once.
const BUFFER_BYTES: usize = 1 << 16;

/// Whether this process has taken over the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is taken over.
// Never dropped: its destructor would show the cursor again, and complain if the terminal is gone.
pub(super) struct Screen(ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>);

/// An input from or about the terminal.
#[derive(Debug)]
pub(super) enum Input {
    Key(KeyEvent),
    /// Its size changed.
    Resized,
    /// It is gone, or cannot be read.
    Gone(io::Error),
    /// The process was stopped and continued; in between, others may have used the terminal.
    Resumed,
    /// A signal requests the exit of the process; its number.
    Signal(i32),
}

impl Screen {
    /// Takes over the terminal. It is restored when this is dropped, and before the message of a panic.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        take_over()?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()));
        match Terminal::new(backend) {
            Ok(terminal) => Ok(Self(ManuallyDrop::new(terminal))),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Draws a picture. Only changes are written.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        // After a panic the terminal is restored, and the message must stay readable.
        if !TAKEN.load(SeqCst) {
            return Err(io::Error::other("it was given back after a panic"));
        }
        self.0.draw(render).map(drop)
    }

    /// Makes the next picture be drawn completely.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // Not by its own method: that asks the terminal for the cursor position, and the answer would be taken for
        // keys.
        let size = self.0.size()?;
        self.0.resize(size.into())
    }

    /// Restores the terminal and stops until the shell continues this process.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // Sent to this thread only: the process stops before the call returns. Without a shell that could continue
        // it, it does not stop.
        raise(Signal::SIGTSTP).map_err(io::Error::from)?;
        self.resume()
    }

    /// Takes over the terminal again, regardless of changes by other processes.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // Taking over is skipped for a terminal that counts as taken over.
        give_back();
        take_over()?;
        self.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    let taken = terminal::enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide));
    if taken.is_err() {
        give_back();
    }
    taken
}

/// Restores the terminal, if it is taken over. Errors are ignored: the terminal may be gone.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// Starts to listen for keys and signals.
pub(super) fn inputs() -> Result<mpsc::Receiver<Input>, Failure> {
    let (to, inputs) = mpsc::channel(INPUTS_MAX);
    let keys = to.clone();
    let refused = |error| Failure::failed(format!("no thread could be started: {error}"));
    thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&keys)).map_err(refused)?;
    // A separate thread, because the drawing thread blocks on a terminal that accepts no output.
    thread::Builder::new().name("signals".to_owned()).spawn(move || await_signal(&to)).map_err(refused)?;
    Ok(inputs)
}

fn read_keys(to: &mpsc::Sender<Input>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(error) => Input::Gone(error),
        };
        let is_last = matches!(input, Input::Gone(_));
        if to.blocking_send(input).is_err() || is_last {
            return;
        }
    }
}

/// Waits for the next signal of a kind, and returns its number.
async fn next(listened: &mut Option<(unix::Signal, i32)>) -> i32 {
    match listened {
        Some((signal, number)) => {
            signal.recv().await;
            *number
        }
        None => std::future::pending().await,
    }
}

/// Waits for a signal that requests the exit, and exits after [`STUCK`] if the process still runs. Until then it also
/// reports when the process is continued after a stop.
fn await_signal(to: &mpsc::Sender<Input>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let number = runtime.block_on(async {
        let listen = |kind: SignalKind| Some((signal(kind).ok()?, kind.as_raw_value()));
        let kinds =
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
        let [mut term, mut hangup, mut interrupt, mut quit] = kinds.map(listen);
        let mut resumed = listen(SignalKind::from_raw(Signal::SIGCONT as i32));
        loop {
            tokio::select! {
                number = next(&mut term) => break number,
                number = next(&mut hangup) => break number,
                number = next(&mut interrupt) => break number,
                number = next(&mut quit) => break number,
                // If the queue is full, keys were pressed, after which everything is drawn anyway.
                _ = next(&mut resumed) => drop(to.try_send(Input::Resumed)),
            }
        }
    });
    // The drawing thread may block, and its queue may be full.
    let _ = to.try_send(Input::Signal(number));
    thread::sleep(STUCK);
    let _ = terminal::disable_raw_mode();
    process::exit(128 + number);
}
