//! The terminal: taking it over, and giving it back however this ends. And what comes from it: keys and signals.

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

/// The time after which the process ends although its terminal takes no output: then nothing can be given back.
const STUCK: Duration = Duration::from_secs(2);
/// The number of inputs that may wait.
const INPUTS_MAX: usize = 64;
/// The size of the buffer in which a picture is written at once, in bytes.
const BUFFER_BYTES: usize = 1 << 16;

/// Whether the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, for as long as it is ours.
// Never dropped: it would show the cursor again, and complain if the terminal is gone.
pub(super) struct Screen(ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>);

/// Something that comes from the terminal, or about it.
#[derive(Debug)]
pub(super) enum Input {
    Key(KeyEvent),
    /// Its size has changed.
    Resized,
    /// It is gone, or cannot be read.
    Gone(io::Error),
    /// The process was stopped, by whomever, and goes on: meanwhile the terminal was somebody else's.
    Resumed,
    /// The process is to end, by the signal of this number.
    Signal(i32),
}

impl Screen {
    /// Takes the terminal over. It is given back when this is dropped, and before the message of a panic.
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

    /// Draws. What is as it was is not written again.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        // A panic has given it back, and its message is to be read.
        if !TAKEN.load(SeqCst) {
            return Err(io::Error::other("it was given back after a panic"));
        }
        self.0.draw(render).map(drop)
    }

    /// Lets everything be drawn anew.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // Not by its own method, which asks the terminal for the place of the cursor: the answer would be taken for keys.
        let size = self.0.size()?;
        self.0.resize(size.into())
    }

    /// Gives the terminal to the shell, until that continues this process.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // To this thread alone: the process stops before the call returns. Where no shell could continue it, it does not
        // stop.
        raise(Signal::SIGTSTP).map_err(io::Error::from)?;
        self.resume()
    }

    /// Takes the terminal over as it is now, whatever others have done to it.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // What is ours already would not be set again.
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

/// Gives the terminal back, if it is ours. A terminal that is gone needs nothing.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// Begins to listen for keys and signals.
pub(super) fn inputs() -> Result<mpsc::Receiver<Input>, Failure> {
    let (to, inputs) = mpsc::channel(INPUTS_MAX);
    let keys = to.clone();
    let refused = |error| Failure::failed(format!("no thread could be started: {error}"));
    thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&keys)).map_err(refused)?;
    // A thread of its own: the one that draws waits for a terminal that takes no output.
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

/// Waits for a signal that is to end the process, and ends it if nobody else does. Meanwhile it tells when the process goes
/// on after a stop.
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
                // Where there is no room, keys were pressed, after which everything is drawn.
                _ = next(&mut resumed) => drop(to.try_send(Input::Resumed)),
            }
        }
    });
    // Who draws may wait for the terminal, and have no room for this.
    let _ = to.try_send(Input::Signal(number));
    thread::sleep(STUCK);
    let _ = terminal::disable_raw_mode();
    process::exit(128 + number);
}
