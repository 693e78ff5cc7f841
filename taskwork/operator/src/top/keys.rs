//! Maps keys to commands, depending on the focus.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The element that receives the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    /// The list of nodes: letters are commands.
    Nodes,
    /// The filter of the nodes: letters are typed.
    Filter,
    /// The list of jobs: letters are typed.
    Jobs,
    /// A yes-or-no question.
    Question,
    /// The help: any key closes it.
    Help,
}

/// A command of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Exit.
    Quit,
    /// Stop until the shell continues the process.
    Suspend,
    /// Redraw everything.
    Redraw,
    /// Move in a list.
    Move(Step),
    /// Start to type a filter.
    Filter,
    /// Sort by the next column.
    Sort,
    /// Show the list of jobs.
    Jobs,
    /// Ask whether the selected node should leave.
    Drain,
    /// Show the keys.
    Help,
    /// Type a character.
    Type(char),
    /// Delete the last character.
    Erase,
    /// Delete the typed text.
    Clear,
    /// Confirm the typed text, the selection or the question.
    Accept,
    /// Cancel.
    Back,
}

/// A step in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// Returns the command of a key; `None` if it has none.
pub(super) fn command(focus: Focus, key: KeyEvent) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Command::Quit),
            KeyCode::Char('z') => Some(Command::Suspend),
            KeyCode::Char('l') => Some(Command::Redraw),
            KeyCode::Char('u') if matches!(focus, Focus::Filter | Focus::Jobs) => Some(Command::Clear),
            _ => None,
        };
    }
    // Keys with Alt have other meanings.
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    match focus {
        Focus::Nodes => step(key.code).map(Command::Move).or_else(|| of_nodes(key.code)),
        Focus::Filter | Focus::Jobs => step(key.code).map(Command::Move).or_else(|| of_typing(key.code)),
        Focus::Question => match key.code {
            KeyCode::Char('y' | 'Y') => Some(Command::Accept),
            // Enter is not a yes: it may have been pressed for the previous screen.
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => Some(Command::Back),
            _ => None,
        },
        Focus::Help => Some(Command::Back),
    }
}

fn step(code: KeyCode) -> Option<Step> {
    match code {
        KeyCode::Up => Some(Step::Up),
        KeyCode::Down => Some(Step::Down),
        KeyCode::PageUp => Some(Step::PageUp),
        KeyCode::PageDown => Some(Step::PageDown),
        KeyCode::Home => Some(Step::First),
        KeyCode::End => Some(Step::Last),
        _ => None,
    }
}

fn of_nodes(code: KeyCode) -> Option<Command> {
    match code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Command::Quit),
        KeyCode::Char('/') => Some(Command::Filter),
        KeyCode::Char('s') => Some(Command::Sort),
        KeyCode::Char('j') => Some(Command::Jobs),
        KeyCode::Char('d') => Some(Command::Drain),
        KeyCode::Char('?' | 'h') => Some(Command::Help),
        _ => None,
    }
}

fn of_typing(code: KeyCode) -> Option<Command> {
    match code {
        KeyCode::Char(c) => Some(Command::Type(c)),
        KeyCode::Backspace => Some(Command::Erase),
        KeyCode::Enter => Some(Command::Accept),
        KeyCode::Esc => Some(Command::Back),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Focus; 5] = [Focus::Nodes, Focus::Filter, Focus::Jobs, Focus::Question, Focus::Help];

    fn of(focus: Focus, code: KeyCode) -> Option<Command> {
        command(focus, KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn control(focus: Focus, c: char) -> Option<Command> {
        command(focus, KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL))
    }

    #[test]
    fn ctrl_c_quits_in_every_focus() {
        for focus in ALL {
            assert_eq!(control(focus, 'c'), Some(Command::Quit), "{focus:?}");
            assert_eq!(control(focus, 'z'), Some(Command::Suspend), "{focus:?}");
        }
        assert_eq!(of(Focus::Nodes, KeyCode::Char('q')), Some(Command::Quit));
        assert_eq!(of(Focus::Nodes, KeyCode::Esc), Some(Command::Quit));
    }

    #[test]
    fn letters_are_typed_only_in_text_fields() {
        for c in ['q', 's', 'j', 'd', '?', '/', 'h'] {
            assert!(!matches!(of(Focus::Nodes, KeyCode::Char(c)), None | Some(Command::Type(_))), "{c}");
            for focus in [Focus::Filter, Focus::Jobs] {
                assert_eq!(of(focus, KeyCode::Char(c)), Some(Command::Type(c)));
            }
        }
        assert_eq!(of(Focus::Nodes, KeyCode::Char('x')), None);
    }

    #[test]
    fn question_is_confirmed_only_by_y() {
        for code in [KeyCode::Enter, KeyCode::Char(' '), KeyCode::Char('d'), KeyCode::Down] {
            assert_eq!(of(Focus::Question, code), None, "{code:?}");
        }
        assert_eq!(of(Focus::Question, KeyCode::Char('y')), Some(Command::Accept));
        for code in [KeyCode::Char('n'), KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(of(Focus::Question, code), Some(Command::Back));
        }
    }

    #[test]
    fn other_keys_have_no_command() {
        let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(command(Focus::Nodes, released), None);
        assert_eq!(command(Focus::Nodes, KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT)), None);
        assert_eq!(control(Focus::Nodes, 'd'), None);
        assert_eq!(of(Focus::Nodes, KeyCode::F(1)), None);
    }
}
