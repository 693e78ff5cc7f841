//! Shows a cluster, or a record of one, on a terminal until the user quits.

use std::{
    io,
    pin::Pin,
    process::ExitCode,
    time::{Duration, Instant},
};

use taskwork::{client::ClientError, view::Event};
use taskwork_cli::{
    Failure,
    command::{interruptible, tell},
};
use tokio::{sync::mpsc, time};

use super::{
    draw::{Look, draw},
    keys::command,
    screen::{Input, Screen, inputs},
    state::{Effect, Leave, State},
};

/// The time between two pictures if no key is pressed.
const EVERY: Duration = Duration::from_secs(1);
/// A cluster ticks about once a second: a picture due within this time is drawn with the tick.
const ABOUT: Duration = Duration::from_millis(100);

/// Asks nodes to leave.
pub(super) trait Ask {
    /// Returns the message for the user.
    fn ask(&self, leave: Leave) -> Pin<Box<dyn Future<Output = Result<String, Failure>> + '_>>;
}

/// A terminal display and its inputs.
pub(super) struct Live<'a, A: Ask> {
    pub(super) state: State,
    pub(super) look: Look,
    /// The observed events of the cluster.
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    pub(super) ask: &'a A,
}

/// A pending request to a node.
type Asked<'a> = Pin<Box<dyn Future<Output = Result<String, Failure>> + 'a>>;

/// The next step after an input.
#[derive(Debug)]
enum Next {
    Go,
    End(ExitCode),
}

impl<A: Ask> Live<'_, A> {
    /// Runs until the user quits. `follow` observes the cluster, and completes only with an error.
    pub(super) async fn run(
        mut self,
        follow: impl Future<Output = ClientError>,
    ) -> Result<ExitCode, Failure> {
        tokio::pin!(follow);
        let mut inputs = inputs()?;
        let mut screen = Screen::take().map_err(|error| no_terminal(&error))?;
        let ask = self.ask;
        let mut asked: Option<Asked<'_>> = None;
        let code = loop {
            self.draw(&mut screen)?;
            let drawn_at = Instant::now();
            let next = loop {
                let due = drawn_at + EVERY + ABOUT;
                tokio::select! {
                    input = inputs.recv() => break self.take_inputs(input, &mut inputs, &mut screen, &mut asked, ask)?,
                    refused = &mut follow => return Err(refused.into()),
                    Some(event) = self.events.recv() => {
                        let is_whole = self.state.is_whole;
                        self.take_events(&event);
                        if is_whole != self.state.is_whole || drawn_at.elapsed() + ABOUT >= EVERY {
                            break Next::Go;
                        }
                    }
                    answer = answer(&mut asked) => {
                        asked = None;
                        self.state.tell(answer.unwrap_or_else(|failure| failure.to_string()));
                        break Next::Go;
                    }
                    // Also without changes, so that a closed terminal is noticed.
                    () = time::sleep_until(due.into()) => break Next::Go,
                }
            };
            if let Next::End(code) = next {
                break code;
            }
        };
        drop(screen);
        match asked {
            None => Ok(code),
            Some(asked) => {
                tell(format_args!("a node is still being asked to leave; Ctrl-C cancels that"));
                tell(format_args!("{}", interruptible(asked).await?));
                Ok(code)
            }
        }
    }

    fn draw(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        screen.draw(|frame| draw(frame, &mut self.state, self.look)).map_err(|error| no_terminal(&error))
    }

    fn take_events(&mut self, event: &Event) {
        self.state.take(event);
        while let Ok(event) = self.events.try_recv() {
            self.state.take(&event);
        }
    }

    /// Handles all pending inputs of the terminal before the next picture is drawn.
    fn take_inputs<'b>(
        &mut self,
        first: Option<Input>,
        inputs: &mut mpsc::Receiver<Input>,
        screen: &mut Screen,
        asked: &mut Option<Asked<'b>>,
        ask: &'b A,
    ) -> Result<Next, Failure> {
        let mut input = first;
        while let Some(one) = input {
            let key = match one {
                Input::Key(key) => key,
                Input::Resized => {
                    input = inputs.try_recv().ok();
                    continue;
                }
                Input::Resumed => {
                    screen.resume().map_err(|error| no_terminal(&error))?;
                    input = inputs.try_recv().ok();
                    continue;
                }
                Input::Gone(error) => return Err(no_terminal(&error)),
                Input::Signal(number) => return Ok(Next::End(ended_by(number))),
            };
            let effect = command(self.state.focus(), key).map(|command| self.state.perform(command));
            match effect {
                None | Some(Effect::None) => {}
                Some(Effect::Quit) => return Ok(Next::End(ExitCode::SUCCESS)),
                Some(Effect::Suspend) => screen.suspend().map_err(|error| no_terminal(&error))?,
                Some(Effect::Redraw) => screen.clear().map_err(|error| no_terminal(&error))?,
                Some(Effect::Drain(_)) if asked.is_some() => {
                    self.state.tell("a request to another node is still pending".to_owned());
                }
                Some(Effect::Drain(leave)) => *asked = Some(ask.ask(leave)),
            }
            input = inputs.try_recv().ok();
        }
        Ok(Next::Go)
    }
}

/// Waits for the pending request to a node; without one, forever.
async fn answer(asked: &mut Option<Asked<'_>>) -> Result<String, Failure> {
    match asked {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    }
}

fn no_terminal(error: &io::Error) -> Failure {
    Failure::failed(format!(
        "the terminal is gone, or cannot be used: {error}. taskwork top | cat prints once"
    ))
}

/// Returns the exit code of a process that was terminated by a signal.
fn ended_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}
