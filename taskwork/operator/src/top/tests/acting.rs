//! The effects of keys.

use ratatui::crossterm::event::KeyCode;
use taskwork::view::{Content, Event};

use super::{ASCII, JOB, busy, drawn, job, line, member, press, report, see, type_in, without_effect};
use crate::top::{
    keys::Command,
    state::{Effect, Leave, Shown, Source, State},
};

#[test]
fn drain_is_sent_only_after_confirmation() {
    let mut state = busy();
    without_effect(&mut state, &[KeyCode::Down, KeyCode::Char('d')]);
    line(&drawn(&mut state, 80, 24, ASCII), "Ask n2 to hand over its tasks and leave?  y/n");
    without_effect(&mut state, &[KeyCode::Enter, KeyCode::Char('d'), KeyCode::Char('n')]);
    line(&drawn(&mut state, 80, 24, ASCII), "n2 was not asked to leave");
    assert_eq!(state.perform(Command::Redraw), Effect::Redraw);
    line(&drawn(&mut state, 80, 24, ASCII), "n2 was not asked to leave");
    without_effect(&mut state, &[KeyCode::Char('d')]);
    // A change of the list does not change the question.
    see(&mut state, 31_000, "members/n11", member("n11"));
    state.take(&Event::tick(31_000));
    let leave = |again| Effect::Drain(Leave { node: "n2".to_owned(), again });
    assert_eq!(press(&mut state, KeyCode::Char('y')), leave(false));
    // The first request is not visible yet: the question is that of a first request, and stays so if the request
    // becomes visible before the answer.
    without_effect(&mut state, &[KeyCode::Char('d')]);
    see(&mut state, 32_000, "drain/n2", Content::Data(Vec::new()));
    state.take(&Event::tick(32_000));
    line(&drawn(&mut state, 80, 24, ASCII), "Ask n2 to hand over its tasks and leave?  y/n");
    assert_eq!(press(&mut state, KeyCode::Char('y')), leave(false));
    assert!(line(&drawn(&mut state, 80, 24, ASCII), ">n2").contains("leaving"));
    without_effect(&mut state, &[KeyCode::Char('d')]);
    line(&drawn(&mut state, 80, 24, ASCII), "Already asked. Ask n2 again, so that it leaves at once?");
    assert_eq!(press(&mut state, KeyCode::Char('y')), leave(true));
    without_effect(&mut state, &[KeyCode::Char('d'), KeyCode::Esc]);
    see(&mut state, 33_000, "members/n2", Content::Gone);
    for second in 33..37 {
        state.take(&Event::tick(second * 1_000));
    }
    let lines = drawn(&mut state, 80, 24, ASCII);
    assert!(line(&lines, ">n2").contains("left") && lines.concat().contains("n2 has left"), "{lines:#?}");
    without_effect(&mut state, &[KeyCode::Char('d')]);
    line(&drawn(&mut state, 80, 24, ASCII), "n2 has already gone");
}

#[test]
fn drain_of_recorded_node_is_refused() {
    let mut state = busy();
    state.source = Source::Record("cluster-1.jsonl".to_owned());
    line(&drawn(&mut state, 80, 24, ASCII), "record cluster-1.jsonl");
    without_effect(&mut state, &[KeyCode::Char('d')]);
    line(&drawn(&mut state, 80, 24, ASCII), "this is a record");
    without_effect(&mut state, &[KeyCode::Char('y')]);
}

#[test]
fn nodes_are_filtered_and_sorted() {
    let mut state = busy();
    let names = |state: &State| state.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    without_effect(&mut state, &[KeyCode::Char('/')]);
    type_in(&mut state, "N3");
    assert_eq!(names(&state), ["n3"]);
    line(&drawn(&mut state, 80, 24, ASCII), "/N3_");
    without_effect(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!(names(&state), ["n1", "n2", "n3"]);
    without_effect(&mut state, &[KeyCode::Char('/')]);
    type_in(&mut state, "q");
    assert!(names(&state).is_empty());
    line(&drawn(&mut state, 80, 24, ASCII), "no node matches");
    without_effect(&mut state, &[KeyCode::Esc]);
    assert_eq!((state.filter.as_str(), names(&state).len()), ("N", 3), "the previous filter is restored");

    see(&mut state, 31_000, &format!("jobs/{JOB}/figures/n2"), report(32_000, 200_000));
    state.take(&Event::tick(31_000));
    for (text, first) in
        [("by state", "n1"), ("most idle first", "n1"), ("fastest first", "n2"), ("most tasks first", "n1")]
    {
        without_effect(&mut state, &[KeyCode::Char('s')]);
        line(&drawn(&mut state, 80, 24, ASCII), text);
        assert_eq!(names(&state)[0], first, "{text}");
        assert_eq!(names(&state)[2], "n3", "unknown values come last: {text}");
    }
    assert_eq!(press(&mut state, KeyCode::Char('q')), Effect::Quit);
    assert_eq!(press(&mut state, KeyCode::Esc), Effect::Quit);
}

#[test]
fn long_node_list_scrolls_to_selection() {
    let mut state = busy();
    for number in 0..1_000 {
        let name = format!("n{number:016x}");
        see(&mut state, 31_000, &format!("members/{name}"), member(&name));
    }
    state.take(&Event::tick(31_000));
    line(&drawn(&mut state, 80, 24, ASCII), "nodes 1 to 7 of 1003");
    without_effect(&mut state, &[KeyCode::End]);
    let lines = drawn(&mut state, 80, 24, ASCII);
    assert!(
        line(&lines, ">n3").contains("member") && lines.concat().contains("nodes 997 to 1003"),
        "{lines:#?}"
    );
    without_effect(&mut state, &[KeyCode::PageUp]);
    line(&drawn(&mut state, 80, 24, ASCII), "nodes 996 to 1002 of");
    without_effect(&mut state, &[KeyCode::Home, KeyCode::Up]);
    line(&drawn(&mut state, 80, 24, ASCII), ">n0000000000000000");
    // The selection stays when nodes join or leave.
    without_effect(&mut state, &[KeyCode::PageDown]);
    line(&drawn(&mut state, 80, 24, ASCII), ">n0000000000000007");
    see(&mut state, 32_000, "members/n0000000000000000", Content::Gone);
    state.take(&Event::tick(32_000));
    line(&drawn(&mut state, 80, 24, ASCII), ">n0000000000000007");
}

#[test]
fn job_list_of_ten_thousand_is_filtered_and_chosen() {
    let mut state = busy();
    for number in 2..=10_000 {
        let record = job(&format!("job {number}"), if number == 9_000 { "suspended" } else { "done" });
        see(&mut state, 31_000, &format!("jobs/j-{number:010}"), record);
    }
    state.take(&Event::tick(31_000));
    line(&drawn(&mut state, 80, 24, ASCII), "2 open jobs");
    without_effect(&mut state, &[KeyCode::Char('j')]);
    let lines = drawn(&mut state, 80, 24, ASCII);
    line(&lines, "Choose one of 10,000 jobs");
    let place = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
    assert!(place("the running job") < place(">j-0000000001"));
    assert!(place("j-0000009000") < place("j-0000010000"), "open jobs first, then the latest");
    type_in(&mut state, "job 77");
    line(&drawn(&mut state, 80, 24, ASCII), ">j-0000007799");
    without_effect(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    line(&drawn(&mut state, 80, 24, ASCII), "job 7798  (tree 1)");
    // A chosen job stays displayed when another one runs.
    state.take(&Event::tick(32_000));
    assert_eq!(state.job().unwrap().0, "j-0000007798");
    without_effect(&mut state, &[KeyCode::Char('j'), KeyCode::Home, KeyCode::Enter]);
    assert_eq!(state.job().unwrap().0, JOB);
    without_effect(&mut state, &[KeyCode::Char('j')]);
    type_in(&mut state, "nothing like this");
    line(&drawn(&mut state, 80, 24, ASCII), "no job matches");
    without_effect(&mut state, &[KeyCode::Enter]);
    assert_eq!(state.job().unwrap().0, JOB);
}

#[test]
fn running_job_is_displayed_until_next_one_runs() {
    let mut state = busy();
    assert_eq!(state.job().unwrap().0, JOB);
    see(&mut state, 31_000, &format!("jobs/{JOB}"), job("the tree", "done"));
    state.take(&Event::tick(31_000));
    assert_eq!(state.job().unwrap().0, JOB, "a finished job stays displayed until another one runs");
    see(&mut state, 32_000, "jobs/j-0000000002", job("next", "running"));
    state.take(&Event::tick(32_000));
    assert_eq!(state.job().unwrap().0, "j-0000000002");
    see(&mut state, 33_000, "jobs/j-0000000002", Content::Gone);
    state.take(&Event::tick(33_000));
    assert_eq!(state.job().unwrap().0, JOB);
    state.shown = Shown::One("j-0000000007".to_owned());
    state.take(&Event::tick(34_000));
    line(&drawn(&mut state, 80, 24, ASCII), "there is no job j-0000000007");
}
