//! What a key asks for, depending on what is shown.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What keys mean at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    /// The nodes: letters are commands.
    Nodes,
    /// A text is typed by which nodes are chosen.
    Filter,
    /// A job is chosen from a list; letters are typed.
    Jobs,
    /// A question is to be answered.
    Question,
    /// The help is read; any key ends that.
    Help,
}

/// What a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// End.
    Quit,
    /// Stop until the shell continues it.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Move in a list.
    Move(Step),
    /// Begin to type a filter.
    Filter,
    /// Sort by something else.
    Sort,
    /// Show the list of jobs.
    Jobs,
    /// Ask whether the selected node is to leave.
    Drain,
    /// Show the keys.
    Help,
    /// A character of what is typed.
    Type(char),
    /// Take back the last character.
    Erase,
    /// Take back all that was typed.
    Clear,
    /// Accept what was typed, selected or asked.
    Accept,
    /// Go back without any effect.
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

/// Returns what a key asks for; `None` if nothing.
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
    // A terminal that sends Alt with a key means something else than the key.
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    match focus {
        Focus::Nodes => step(key.code).map(Command::Move).or_else(|| of_nodes(key.code)),
        Focus::Filter | Focus::Jobs => step(key.code).map(Command::Move).or_else(|| of_typing(key.code)),
        Focus::Question => match key.code {
            KeyCode::Char('y' | 'Y') => Some(Command::Accept),
            // Enter may have been pressed for something before.
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
    fn one_can_always_leave() {
        for focus in ALL {
            assert_eq!(control(focus, 'c'), Some(Command::Quit), "{focus:?}");
            assert_eq!(control(focus, 'z'), Some(Command::Suspend), "{focus:?}");
        }
        assert_eq!(of(Focus::Nodes, KeyCode::Char('q')), Some(Command::Quit));
        assert_eq!(of(Focus::Nodes, KeyCode::Esc), Some(Command::Quit));
    }

    #[test]
    fn letters_are_commands_only_where_nothing_is_typed() {
        for c in ['q', 's', 'j', 'd', '?', '/', 'h'] {
            assert!(!matches!(of(Focus::Nodes, KeyCode::Char(c)), None | Some(Command::Type(_))), "{c}");
            for focus in [Focus::Filter, Focus::Jobs] {
                assert_eq!(of(focus, KeyCode::Char(c)), Some(Command::Type(c)));
            }
        }
        assert_eq!(of(Focus::Nodes, KeyCode::Char('x')), None);
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        for code in [KeyCode::Enter, KeyCode::Char(' '), KeyCode::Char('d'), KeyCode::Down] {
            assert_eq!(of(Focus::Question, code), None, "{code:?}");
        }
        assert_eq!(of(Focus::Question, KeyCode::Char('y')), Some(Command::Accept));
        for code in [KeyCode::Char('n'), KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(of(Focus::Question, code), Some(Command::Back));
        }
    }

    #[test]
    fn other_keys_are_no_commands() {
        let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(command(Focus::Nodes, released), None);
        assert_eq!(command(Focus::Nodes, KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT)), None);
        assert_eq!(control(Focus::Nodes, 'd'), None);
        assert_eq!(of(Focus::Nodes, KeyCode::F(1)), None);
    }
}
