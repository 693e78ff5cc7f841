//! Pictures for various sizes of terminals and states of clusters.

use ratatui::crossterm::event::KeyCode;
use serde_json::{Value, json};
use taskwork::view::{Content, Event};

use super::{
    ASCII, HOSTILE, JOB, PLAIN, busy, data, drawn, job, line, member, press, report, see, state, type_in,
    without_effect,
};
use crate::top::plain;

#[test]
fn terminal_of_80_by_24_shows_everything() {
    for look in [PLAIN, ASCII] {
        let lines = drawn(&mut busy(), 80, 24, look);
        for text in [
            "/taskwork/default",
            "3 nodes, 6 workers, 1 open job",
            "00:00:30 UTC",
            "the tree  (tree 1)",
            "running",
            "25.0 % done",
            "best 100.5  bound 90  gap 10.4 %  open tasks 8  busy 2 of 4 workers on 2 nodes",
            "Rate of work 4,000/s, at most 4,000/s",
            "Workers 4, at most 4",
            "Latest",
            "ZooKeeper",
            "n3 has joined",
            "requests 20, reads 2",
            "nodes 1 to 3 of 3, by name",
            "q quit",
        ] {
            line(&lines, text);
        }
        let n1 = line(&lines, ">n1");
        for text in ["works", "1/2", "25.0 %", "2,000/s", "2,345", "17", "12 MiB"] {
            assert!(n1.contains(text), "no {text:?} in {n1:?}");
        }
        let n3 = line(&lines, " n3      ");
        assert!(n3.contains("member") && !n3.contains('0'), "unknown values are not 0: {n3:?}");
        assert!(line(&lines, "25.0 % done").contains(if look.is_ascii {
            " #####..............."
        } else {
            " █████░░░░░░░░░░░░░░░"
        }));
    }
}

#[test]
fn values_of_framework_replace_unknown_solution() {
    let values = json!([
        { "name": "eggs", "label": "eggs", "unit": "count", "value": 1_200 },
        { "name": "nest", "label": HOSTILE, "unit": "text", "value": HOSTILE },
    ]);
    let status = json!({ "rank": 1, "content": { "version": 1, "values": values } });
    for best in [json!({ "value": 100.5, "sense": "min", "name": "incumbent" }), Value::Null] {
        let mut state = busy();
        for node in ["n1", "n2"] {
            let Content::Data(last) = report(31_000, 62_000) else { panic!("it is a record") };
            let mut report: Value = serde_json::from_slice(&last).unwrap();
            (report["best"], report["status"]) = (best.clone(), status.clone());
            see(&mut state, 31_000, &format!("jobs/{JOB}/figures/{node}"), data(&report));
        }
        state.take(&Event::tick(31_000));
        let lines = drawn(&mut state, 120, 24, PLAIN);
        let figures = line(&lines, "eggs 2,400");
        assert_eq!(figures.contains("best 100.5"), !best.is_null(), "{figures}");
        let text = plain::text(&state, true);
        assert!(text.contains("eggs 2,400") && !text.contains('\u{1b}'), "{text:?}");
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
    }
}

#[test]
fn larger_terminal_shows_more_columns() {
    let lines = drawn(&mut busy(), 200, 60, PLAIN);
    for text in ["LOAD", "PROGRAM", "LABELS", "zone=a", "0.5", "transactions 0, 0 retried"] {
        line(&lines, text);
    }
    assert_eq!(lines.len(), 60);
    assert!(lines[59].contains("q quit"), "{lines:#?}");
}

#[test]
fn small_terminal_shows_required_size_and_main_facts() {
    for (width, height) in [(40, 10), (79, 24), (80, 23)] {
        let lines = drawn(&mut busy(), width, height, ASCII);
        line(&lines, &format!("{width} x {height} is too small"));
        line(&lines, "80 x 24, or press q to quit.");
        line(&lines, "25.0 % done");
    }
    // Any size works, also with an open box.
    for (width, height) in [(1, 1), (3, 200), (200, 3), (10, 2)] {
        let mut state = busy();
        drawn(&mut state, width, height, PLAIN);
        for code in [KeyCode::Char('?'), KeyCode::Esc, KeyCode::Char('j'), KeyCode::End, KeyCode::Esc] {
            let _ = press(&mut state, code);
            drawn(&mut state, width, height, ASCII);
        }
    }
    let mut state = busy();
    without_effect(&mut state, &[KeyCode::Char('d')]);
    assert!(drawn(&mut state, 60, 10, ASCII)[0].contains("Ask n1 to hand over its tasks"));
}

#[test]
fn empty_cluster_is_no_error() {
    let mut empty = state();
    line(&drawn(&mut empty, 80, 24, ASCII), "the cluster is being read");
    see(&mut empty, 5, "", Content::Found);
    empty.take(&Event::tick(5));
    let lines = drawn(&mut empty, 80, 24, ASCII);
    for text in ["0 nodes, 0 workers, 0 open jobs", "no job was submitted", "no node is a member", "no nodes"]
    {
        line(&lines, text);
    }
    for key in "sjd/?".chars() {
        let _ = press(&mut empty, KeyCode::Char(key));
        drawn(&mut empty, 80, 24, ASCII);
        let _ = press(&mut empty, KeyCode::Enter);
        drawn(&mut empty, 80, 24, ASCII);
    }
}

#[test]
fn missing_cluster_is_reported_until_it_exists() {
    let mut state = state();
    state.begin_to_wait("there is no cluster \"defautl\"".to_owned());
    let missing = "there is no cluster \"defautl\". It will be shown as soon as it exists";
    line(&drawn(&mut state, 100, 24, ASCII), missing);
    see(&mut state, 1_795_629_600_000, "", Content::Found);
    for second in 0..60 {
        state.take(&Event::tick(1_795_629_600_000 + second * 1_000));
        without_effect(&mut state, &[KeyCode::Down]);
    }
    line(&drawn(&mut state, 100, 24, ASCII), missing);
    see(&mut state, 1_795_629_660_000, "members/n1", member("n1"));
    state.take(&Event::tick(1_795_629_660_000));
    assert!(!drawn(&mut state, 100, 24, ASCII).concat().contains("no cluster"));
}

#[test]
fn finished_job_keeps_its_display() {
    let mut state = busy();
    see(&mut state, 61_000, &format!("jobs/{JOB}"), job("the tree", "done"));
    state.take(&Event::tick(61_000));
    state.take(&Event::tick(3_600_000));
    let lines = drawn(&mut state, 80, 24, ASCII);
    assert!(line(&lines, JOB).contains("done, 1 min 1 s"), "{lines:#?}");
    line(&lines, "j-0000000001 is over: done");
    assert!(line(&lines, "Rate of work").contains("Rate of work -"), "a finished job does no work");
    assert!(line(&lines, "0 open jobs").contains("01:00:00 UTC"));
}

#[test]
fn unreported_values_are_not_zero() {
    let mut state = state();
    see(&mut state, 1, "", Content::Found);
    see(&mut state, 1, &format!("jobs/{JOB}"), job("", "running"));
    see(&mut state, 1, "members/n1", Content::Data(b"garbage".to_vec()));
    for second in 1..5 {
        state.take(&Event::tick(second * 1_000));
    }
    let lines = drawn(&mut state, 80, 24, ASCII);
    line(&lines, "best -  bound -  gap -  open tasks -  busy -");
    line(&lines, "Rate of work -");
    line(&lines, "no node has reported its requests");
    line(&lines, "waits: no node runs tree 1");
    line(&lines, "(and 1 more)");
    let node = line(&lines, ">n1");
    assert!(!node.contains('0') && node.matches(" -").count() == 6, "{node:?}");
}

#[test]
fn silence_of_zookeeper_is_shown_with_its_start() {
    let mut state = busy();
    see(&mut state, 31_000, "", Content::Lost);
    state.take(&Event::tick(31_000));
    state.take(&Event::tick(95_000));
    let lines = drawn(&mut state, 80, 24, ASCII);
    line(&lines, "ZooKeeper has not answered since 00:00:31, for 1 min 4 s");
    line(&lines, "silent since 00:00:31, for 1 min 4 s");
    line(&lines, ">n1");
    see(&mut state, 96_000, "", Content::Found);
    state.take(&Event::tick(96_000));
    let lines = drawn(&mut state, 80, 24, ASCII);
    line(&lines, "answers, after 1 outage");
    assert!(!lines.concat().contains("has not answered"), "{lines:#?}");
}

#[test]
fn hostile_names_stay_in_their_columns() {
    let long = "x".repeat(10_240);
    for name in
        [HOSTILE, long.as_str(), "旅行商人旅行商人旅行商人旅行商人旅行商人", "e\u{301}\u{301}\u{301}\u{301}"]
    {
        let mut state = busy();
        see(&mut state, 40_000, &format!("jobs/{JOB}"), job(name, "running"));
        see(&mut state, 40_000, &format!("members/{name}"), member(name));
        state.take(&Event::tick(40_000));
        for look in [PLAIN, ASCII] {
            for keys in ["", "j", "?"] {
                type_in(&mut state, keys);
                let lines = drawn(&mut state, 80, 24, look);
                assert!(lines.iter().all(|line| !line.contains('\u{202e}')));
                assert!(lines[23].starts_with(" q quit"), "{lines:#?}");
                without_effect(&mut state, if keys.is_empty() { &[] } else { &[KeyCode::Esc] });
            }
        }
        let text = plain::text(&state, false);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n') && !text.contains('\u{202e}'), "{text:?}");
        assert!(text.lines().all(|line| line.len() < 2_000));
    }
}
