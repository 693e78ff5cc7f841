//! Reports from records, and errors for unusable records.

use super::*;

#[test]
fn job_recorded_from_start_has_complete_history() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    let seen = seen(&recorded.write(&folder.path().join("a.jsonl")));
    assert_eq!(
        (seen.name(), seen.source.as_str(), seen.began_ms()),
        ("a job", "a.jsonl", Some(SUBMITTED_MS + 1_000))
    );
    assert_eq!(seen.remarks, Vec::<String>::new());
    let job = seen.job().unwrap();
    assert_eq!((job.nodes.len(), job.about.best, job.about.stage.text()), (3, Some(40.0), "done"));
    assert_eq!(job.series.points.last().unwrap().worked, 600);
    let moments: Vec<(&str, Value)> =
        seen.snapshot.moments.iter().map(|moment| (moment.name.as_str(), json!(moment.what))).collect();
    for moment in [("n3", json!("joined")), ("n2", json!("lost")), (JOB, json!("job_over"))] {
        assert!(moments.contains(&moment), "{moment:?} in {moments:?}");
    }
    let values: Vec<&Value> = seen.improvements.iter().map(|found| &found["value"]).collect();
    assert_eq!(values, [&json!(50.0), &json!(40.2), &json!(40.0)]);
}

#[test]
fn unobserved_times_are_remarked() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.events.clear();
    recorded.at_ms = SUBMITTED_MS + 60_000;
    recorded.job(JOB, "running");
    recorded.join(JOB, "n1");
    recorded.found();
    recorded.pass(5);
    let file = recorded.write(&folder.path().join("a.jsonl"));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 5]).unwrap();
    let seen = seen(&file);
    assert_eq!(seen.began_ms(), None);
    let [late, open, cut] = &seen.remarks[..] else { panic!("{:?}", seen.remarks) };
    assert!(late.contains("observed from 2023-11-14T22:14:20Z on, 1m after its submission"), "{late}");
    assert!(open.contains("ends at 2023-11-14T22:14:24Z, before the end of the job"), "{open}");
    assert!(cut.contains("a.jsonl is cut off"), "{cut}");
}

#[test]
fn records_of_restarted_observer_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    // There is no observer for twenty seconds while the job runs, and a node leaves in that time.
    let all = std::mem::take(&mut recorded.events);
    let (before, after) = (SUBMITTED_MS + 15_000, SUBMITTED_MS + 35_000);
    let part = |is_in: &dyn Fn(u64) -> bool| all.iter().filter(|event| is_in(event.at_ms)).cloned().collect();
    recorded.events = part(&|at_ms| at_ms <= before);
    recorded.write(&folder.path().join("z.jsonl"));
    recorded.at_ms = after;
    recorded.job(JOB, "running");
    for node in ["n1", "n3"] {
        recorded.join(JOB, node);
    }
    recorded.see(format!("jobs/{JOB}/attempts/1/outputs/n2"), entry());
    recorded.report(JOB, "n1", 350, Some(40.2));
    recorded.found();
    let later: Vec<Event> = part(&|at_ms| at_ms > after);
    recorded.events.extend(later);
    // The order of file names is not that of the runs.
    recorded.write(&folder.path().join("a.jsonl"));
    let seen = seen(folder.path());
    let [pause] = &seen.remarks[..] else { panic!("{:?}", seen.remarks) };
    assert!(
        pause.starts_with(
            "Nobody observed the cluster from 2023-11-14T22:13:35Z to 2023-11-14T22:13:55Z (20s)"
        ),
        "{pause}"
    );
    let job = seen.job().unwrap();
    let times = job.series.points.iter().map(|point| (point.at_ms - SUBMITTED_MS) / 1_000);
    assert_eq!(times.filter(|s| (16..35).contains(s)).count(), 0, "that time is unknown");
    assert_eq!(job.series.points.last().unwrap().worked, 600);
    assert_eq!(seen.began_ms(), Some(SUBMITTED_MS + 1_000));
    let lost = seen.snapshot.moments.iter().any(|moment| moment.name == "n2" && json!(moment.what) == "lost");
    assert!(lost, "{:?}", seen.snapshot.moments);
}

#[test]
fn removed_or_old_job_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    for number in 2..40 {
        recorded.job(&format!("j-{number:010}"), "done");
        recorded.pass(1);
    }
    for path in [format!("jobs/{JOB}/figures/n1"), format!("jobs/{JOB}")] {
        recorded.see(path, Content::Gone);
    }
    recorded.pass(5);
    let seen = seen(&recorded.write(&folder.path().join("a.jsonl")));
    let job = seen.job().unwrap();
    assert_eq!((job.nodes.len(), job.about.figures.worked, job.series.points.len()), (3, 600, 61));
    assert!(seen.snapshot.moments.iter().any(|moment| moment.name == "n3"));
}

#[test]
fn record_without_job_is_refused_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let missing = refused(&path("no.jsonl"), JOB);
    assert!(missing.contains("no.jsonl cannot be read"), "{missing}");
    let empty = refused(folder.path(), JOB);
    assert!(empty.contains("holds no record") && empty.contains("--record DIR"), "{empty}");
    fs::write(path("a.jsonl"), "").unwrap();
    let nothing = refused(&path("a.jsonl"), JOB);
    assert!(nothing.contains("holds no tick of a cluster") && nothing.contains("--record DIR"), "{nothing}");
    fs::write(path("a.jsonl"), "no event\n{}\n").unwrap();
    let garbage = refused(&path("a.jsonl"), JOB);
    assert!(garbage.contains("a.jsonl: line 1 of the record is no event"), "{garbage}");
    let mut recorded = Recorded::new();
    recorded.write(&path("a.jsonl"));
    let none = refused(&path("a.jsonl"), JOB);
    assert!(none.contains("has nothing of job j-0000000001: it has seen no job at all"), "{none}");
    recorded.job("j-0000000007", "running");
    recorded.pass(1);
    recorded.write(&path("a.jsonl"));
    let other = refused(&path("a.jsonl"), JOB);
    assert!(other.contains("it has j-0000000007"), "{other}");
    // A record from elsewhere may contain made-up names.
    recorded.job("j-0000000007", "running");
    recorded.job("\u{1b}]0;owned\u{7}\u{1b}[2J", "running");
    recorded.pass(1);
    recorded.write(&path("a.jsonl"));
    assert_eq!(refused(&path("a.jsonl"), JOB), other);
}

#[test]
fn different_jobs_with_same_id_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Recorded::new();
    first.run(JOB);
    let mut second = Recorded { key: "second".to_owned(), ..first.clone() };
    second.events.clear();
    second.job(JOB, "running");
    second.found();
    let mut both = first.clone();
    both.events.extend(second.events.iter().cloned());
    let (one, two) =
        (first.write(&folder.path().join("a.jsonl")), second.write(&folder.path().join("b.jsonl")));
    let said = refused(folder.path(), JOB);
    for part in
        ["2 different jobs of the id j-0000000001", "a.jsonl: submitted at 2023", "b.jsonl", "--record FILE"]
    {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert_eq!((seen(&one).job().is_some(), seen(&two).job().is_some()), (true, true));
    let said = refused(&both.write(&folder.path().join("c.jsonl")), JOB);
    assert!(said.contains("2 different jobs") && said.contains("several clusters"), "{said}");
}
