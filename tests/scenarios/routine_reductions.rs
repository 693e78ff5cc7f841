//! Reductions of the results of jobs, and parameter spaces, on this machine.

use std::fs;

use serde_json::json;

use crate::routine_here::Place;

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
