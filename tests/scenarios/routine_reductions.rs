//! Reductions of the results of jobs by numbers and by routines, and parameter spaces.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    routine_here::Place,
    routine_site::{Gateway, Site, write_routine},
};

#[test]
fn python_client_reduces_results_in_groups() {
    let place = Place::new();
    let script = r#"
import routines

with routines.here("--workers", "2") as r:
    few = [{"topk": 2}, {"bottomk": 3}, {"histogram": {"from": -1, "to": 1, "bins": 2}}]
    reduced = r.map("area@1.0", [-9.0, 0.5, -1, float("nan"), 1, 0.5], reduce=few).reduced()
    assert reduced["topk"] == [{"index": 4, "value": 1}, {"index": 1, "value": 0.5}], reduced
    assert [one["index"] for one in reduced["bottomk"]] == [0, 2, 1]
    grid = routines.product(x=[2, 1], y=[10.0, 20.0], scale=range(3))
    groups = r.starmap("area@1.0", grid, reduce=["mean", {"topk": 1}], by=["x", "y"]).groups()
    assert groups == [
        {"by": {"x": x, "y": y}, "mean": x * y, "topk": [{"index": at + 2, "value": 2 * x * y}]}
        for x, y, at in [(1, 10, 6), (1, 20, 9), (2, 10, 0), (2, 20, 3)]
    ], groups
    assert reduced["histogram"] == {"from": -1, "to": 1, "counts": [1, 3], "under": 1, "over": 0, "nan": 1}
    for arguments, part in [([[1, [2]]], "argument 0: 1 is a list"),
                            (routines.zipped([0] * 10_001, range(10_001)), "more than 10000 groups")]:
        try:
            r.starmap("area@1.0", arguments, reduce=["sum"], by=1)
        except routines.RequestError as error:
            assert error.status == 400 and part in str(error), error
        else:
            raise AssertionError("it is refused")
"#;
    place.python(script);
}

#[test]
fn map_prints_reductions_of_a_space() {
    let place = Place::new();
    fs::write(place.path().join("space.json"), r#"{"product": {"y": [1, 2], "x": {"range": [0, 4]}}}"#)
        .unwrap();
    let map = ["map", "area@1.0", "--arguments", "space.json"];
    let listed = place.json(&map);
    let values: Vec<f64> =
        listed["results"].as_array().unwrap().iter().map(|it| it["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [0.0, 1.0, 2.0, 3.0, 0.0, 2.0, 4.0, 6.0]);
    let reduced = place.run(&[&map[..], &["--reduce", "sum,argmax,topk=1"]].concat());
    let expected = "{\"argmax\":7,\"sum\":18.0,\"topk\":[{\"index\":7,\"value\":6.0}]}\n";
    assert_eq!((reduced.code, &*reduced.out), (0, expected), "{}", reduced.err);
    assert_eq!(place.json(&[&map[..], &["--reduce", "mean"]].concat())["reduced"], json!({ "mean": 2.25 }));
    let groups = place.run(&[&map[..], &["--reduce", "sum,count", "--by", "y"]].concat());
    let expected =
        "{\"by\":{\"y\":1},\"count\":4,\"sum\":6.0}\n{\"by\":{\"y\":2},\"count\":4,\"sum\":12.0}\n";
    assert_eq!((groups.code, &*groups.out), (0, expected), "{}", groups.err);
    let groups = place.json(&["map", "square@1.0", "--range", "3..5", "--reduce", "max", "--by", "0"]);
    assert_eq!(
        groups["groups"],
        json!([{ "by": { "0": 3 }, "max": 9.0 }, { "by": { "0": 4 }, "max": 16.0 }])
    );
    let failed = place.run(&["map", "square@1.0", "--range", "-2..3", "--reduce", "count"]);
    assert_eq!((failed.code, &*failed.out), (1, "{\"count\":3}\n"), "{}", failed.err);
    assert!(failed.err.contains("2 calls of job"), "{}", failed.err);
    let median = place.run(&[&map[..], &["--reduce", "median"]].concat());
    assert!(median.code == 2 && median.err.contains("argmin") && median.err.contains("topk=K"), "{median:?}");
}

/// Reducers: the first three keep their laws, the others break one each.
const REDUCERS: &str = r#"
def merge(values):
    return {"squares": sorted(n for value in values for n in value.get("squares", [value.get("square")]))}

def total(values):
    return sum(values)

def largest(values):
    return max(values, default=None) if None not in values else max((v for v in values if v is not None), default=None)

def mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

def last(values):
    return values[-1] if values else None

def more(values):
    return sum(values) + 1

def one(values):
    return values[0]

def refuses(values):
    raise ValueError(f"no {values}")
"#;

fn write_reducer(folder: &Path, entry: &str, more: &str) {
    let description =
        format!("name = '{entry}'\nversion = '1'\nreducer = true\nentry = 'module:{entry}'\n{more}");
    write_routine(&folder.join(entry), &description, folder, REDUCERS);
}

#[test]
fn check_names_the_law_that_a_reducer_breaks() {
    let place = Place::new();
    let example = "[[example]]\nargument = [[1, 2.5, 10, -7]]\n";
    for (entry, more, broken) in [
        ("total", example, None),
        ("largest", example, None),
        ("mean", example, Some("it is not associative")),
        ("last", example, Some("it is not commutative")),
        ("more", example, Some("it is not associative")),
        ("one", example, Some("the reducer fails for []")),
        ("merge", "", Some("no examples with three different values")),
    ] {
        write_reducer(place.path(), entry, more);
        let checked = place.run(&["check", entry, "--json"]);
        let all: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
        let message = all["defects"][0]["message"].as_str();
        assert_eq!(message.is_some(), broken.is_some(), "{entry}: {all}");
        assert!(message.unwrap_or_default().contains(broken.unwrap_or_default()), "{entry}: {all}");
        if broken.is_some() {
            assert_eq!(all["defects"][0]["line"], 4, "{all}");
        }
    }
}

#[test]
fn map_combines_results_by_a_reducer_only() {
    let place = Place::new();
    write_reducer(place.path(), "total", "");
    assert_eq!(place.run(&["deploy", "total"]).code, 0);
    let map = ["map", "square@1.0", "--range", "-2..30", "--reduce"];
    let combined = place.run(&[&map[..], &["sum,routine=total"]].concat());
    let expected = format!("{{\"routine\":{0},\"sum\":{0}.0}}\n", (0..30).map(|n| n * n).sum::<i32>());
    assert_eq!((combined.code, &*combined.out), (1, &*expected), "{}", combined.err);
    for (reduce, part) in
        [("routine=area@1.0", "is no reducer"), ("routine=missing@1", "no routine missing@1")]
    {
        let refused = place.run(&[&map[..], &[reduce]].concat());
        assert!(refused.code != 0 && refused.err.contains(part), "{refused:?}");
    }
}

#[test]
fn failed_reducer_leaves_results_with_its_reason() {
    let place = Place::new();
    write_reducer(place.path(), "refuses", "");
    assert_eq!(place.run(&["deploy", "refuses"]).code, 0);
    let map = ["map", "square@1.0", "--range", "2..4", "--reduce"];
    let printed = place.run(&[&map[..], &["routine=refuses"]].concat());
    assert_eq!((printed.code, printed.out.lines().count()), (1, 2), "{}", printed.err);
    assert!(printed.err.contains("not combined") && printed.err.contains("no [4, 9]"), "{}", printed.err);
    let printed = place.run(&[&map[..], &["routine=refuses,sum"]].concat());
    assert_eq!((printed.code, &*printed.out), (1, "{\"sum\":13.0}\n"), "{}", printed.err);
    let script = r#"
import routines

with routines.here("--workers", "2") as r:
    job = r.map("area@1.0", [1, 2], reduce=[{"routine": "refuses"}])
    try:
        job.reduced()
    except routines.JobError as error:
        assert "not combined" in str(error) and "ValueError: no" in str(error), error
    else:
        raise AssertionError("it is combined")
    assert job.values() == [1, 2]
"#;
    place.python(script);
}

#[test]
fn reducer_has_each_result_once_although_node_is_killed() {
    let mut site = Site::new();
    write_reducer(site.cluster.folder(), "merge", "");
    let merge = site.cluster.folder().join("merge");
    site.cluster.json("routines", &["deploy", merge.to_str().unwrap()]).unwrap();
    site.start_nodes(2);
    let gateway = Gateway::start(&site.cluster);
    let body = json!({ "routine": "square@1.0", "arguments": { "range": [0, 1_200] }, "reduce": [{ "routine": "merge" }] });
    let (status, job) = gateway.post("/v1/jobs", "", &body);
    assert_eq!(status, 201, "{job}");
    site.wait_for_calls(200);
    site.cluster.kill_nodes(&[0]).unwrap();
    let state = gateway.wait(job["job"].as_str().unwrap(), &site.cluster);
    let squares: Vec<u64> = (0..1_200).map(|n| n * n).collect();
    assert_eq!((&state["state"], &state["ended"]), (&json!("successful"), &json!(1_200)), "{state}");
    assert_eq!(state["reduced"], json!({ "routine": { "squares": squares } }));
}

#[test]
fn removed_job_leaves_its_usage_and_no_data() {
    let place = Place::new();
    write_reducer(place.path(), "total", "");
    assert_eq!(place.run(&["deploy", "total"]).code, 0);
    let script = r#"
import json, os, routines

def refused(status, call):
    try:
        call()
    except routines.RequestError as error:
        assert error.status == status, error
    else:
        raise AssertionError("it is not refused")

with routines.here("--workers", "1") as r:
    held = r.map("held@1.0", ["go"])
    refused(409, held.remove)
    held.cancel()
    marks = [f"31415926{n}" for n in range(3)]
    job = r.map("area@1.0", [int(mark) for mark in marks], reduce=[{"routine": "total"}], key="mine")
    assert job.reduced()["routine"] == sum(map(int, marks))
    calls = lambda: next(one["calls"] for one in r.usage() if one["routine"] == "area@1.0")
    before = calls()
    folder = os.path.join("store", "jobs")
    files = lambda: [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    has_mark = lambda: [name for name in files() if any(mark.encode() in open(name, "rb").read() for mark in marks)]
    assert has_mark()
    removed = job.remove()
    assert removed["objects"] >= 5 and removed["bytes"] > 0 and removed["left"] == [], removed
    assert not has_mark()
    for call in (job.status, lambda: list(job.results()), job.remove):
        refused(404, call)
    assert calls() == before == 3
    again = r.map("area@1.0", [1], key="mine")
    assert again.id != job.id and again.values() == [1]
"#;
    place.python(script);
}
