//! The page of a job as one file.

use super::*;

/// The maximum size of a page, in bytes.
const PAGE_BYTES_MAX: usize = 2 << 20;

#[test]
fn page_of_same_record_is_identical() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    let file = recorded.write(&folder.path().join("a.jsonl"));
    let page = page(&seen(&file));
    assert_eq!(page, super::page(&seen(&file)));
    let data = held(&page);
    assert_eq!((&data["first"], &data["view"]["source"]), (&json!(["job", JOB]), &json!("replay")));
    let snapshot = &data["view"]["snapshot"];
    let job = &snapshot["jobs"][JOB];
    assert_eq!((&job["about"]["stage"], &job["about"]["best"]), (&json!("done"), &json!(40.0)));
    assert_eq!(job["series"]["points"].as_array().unwrap().len(), 61);
    assert_eq!(snapshot["members"].as_object().unwrap().keys().collect::<Vec<_>>(), ["n1", "n3"]);
    assert_eq!(snapshot["members"]["n1"]["member"]["fingerprint"], Value::Null, "only nodes need it");
    assert_eq!(
        (&job["nodes"]["n2"]["state"], &job["nodes"]["n1"]["state"]),
        (&json!("lost"), &json!("member"))
    );
    assert_eq!(data["job"]["improvements"].as_array().unwrap().len(), 3);
    assert!(page.contains("<title>a job · j-0000000001 · taskwork</title>"));
}

#[test]
fn names_from_znodes_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.name = "</script><script>alert(1)</script><!--\u{2028}\u{2029}'\"&lt;".to_owned();
    recorded.run(JOB);
    recorded.join(JOB, "<img src=x>");
    recorded.pass(1);
    let page = page(&seen(&recorded.write(&folder.path().join("a.jsonl"))));
    let record = &held(&page)["view"]["snapshot"]["jobs"][JOB]["about"]["record"];
    assert_eq!(record["name"], recorded.name.as_str());
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (3, 3));
    assert!(!page.contains("<img src=x") && !page.contains("alert(1)</script>"));
    assert!(held(&page)["view"]["snapshot"]["jobs"][JOB]["nodes"]["<img src=x>"].is_object());
    let (_, title) = page.split_once("<title>").unwrap();
    assert!(title.starts_with("&lt;/script&gt;&lt;script&gt;alert(1)"));
}

#[test]
fn page_of_thousand_nodes_and_one_hour_fits_two_mebibytes() {
    let folder = tempfile::tempdir().unwrap();
    let classes: Vec<u32> = (0..32).map(|class| 1_000_000 + class).collect();
    let event = |n: u64| json!({ "at_ms": SUBMITTED_MS + n, "kind": "improved", "detail": "incumbent <&>" });
    for (nodes, is_whole) in [(1_000, true), (3_000, false)] {
        let mut recorded = Recorded::new();
        recorded.pass(10);
        recorded.job(JOB, "running");
        recorded.join(JOB, "n0000000000000000");
        recorded.pass(620);
        for number in 0..nodes {
            let node = format!("n{number:016x}");
            recorded.join(JOB, &node);
            let Some(Event { content: Content::Data(last), .. }) = recorded.events.pop() else { panic!() };
            let mut report: Value = serde_json::from_slice(&last).unwrap();
            report["timeline"] = (0..64).map(event).collect::<Vec<_>>().into();
            report["latencies"] = json!({ "reads": classes, "writes": classes });
            report["figures"]["steal_times"] = json!(classes);
            report["figures"]["worked"] = json!(1_000_000_000_u64 + number);
            report["givers"] = json!({
                "most": (0..8).map(|n| json!({ "node": format!("n{n:016x}"), "tasks": 1_000_000 })).collect::<Vec<_>>(),
                "rest": 12_345,
            });
            recorded.see(format!("jobs/{JOB}/figures/{node}"), data(&report));
        }
        recorded.pass(1);
        let page = page(&seen(&recorded.write(&folder.path().join("a.jsonl"))));
        assert!(page.len() <= PAGE_BYTES_MAX, "{} bytes", page.len());
        let view = &held(&page)["view"];
        let shown = view["snapshot"]["jobs"][JOB]["nodes"].as_object().unwrap();
        let remarks = view["remarks"].to_string();
        assert!(remarks.contains("at most 8 events of each node"), "{remarks}");
        let all = usize::try_from(nodes).unwrap();
        assert_eq!(
            (shown.len() == all, remarks.contains("that did the most work were kept")),
            (is_whole, !is_whole),
            "{remarks}"
        );
        assert!(shown.len() >= all.min(1_000) && shown.contains_key(&format!("n{:016x}", nodes - 1)));
        let timeline = shown[&format!("n{:016x}", nodes - 1)]["report"]["timeline"].as_array().unwrap();
        assert_eq!((timeline.len(), &timeline[0], &timeline[7]), (8, &event(0), &event(63)));
    }
}

#[test]
fn display_of_framework_is_kept_without_pictures_that_are_too_large() {
    let folder = tempfile::tempdir().unwrap();
    for (shapes, is_whole) in [(10, true), (9_000, false)] {
        let mut recorded = Recorded::new();
        recorded.run(JOB);
        let Some(Event { content: Content::Data(last), .. }) =
            recorded.events.iter().rfind(|event| event.path.ends_with("figures/n1")).cloned()
        else {
            panic!("n1 has reported")
        };
        let mut report: Value = serde_json::from_slice(&last).unwrap();
        let label = "</script><script>alert(1)</script>";
        let pictures = [
            ("svg", format!("<svg>{}</svg>", "<g><rect/></g>".repeat(shapes))),
            ("dot", "digraph {}".to_owned()),
        ];
        report["status"] = json!({ "rank": 1, "content": {
            "version": 1,
            "values": [{ "name": "eggs", "label": label, "unit": "count", "value": 7 }],
            "tables": [{ "name": "nests", "columns": [{ "name": "x", "unit": "text" }], "rows": [{ "x": label }] }],
            "pictures": pictures.map(|(format, content)| json!({ "name": "nest", "format": format, "content": content })),
        } });
        recorded.see(format!("jobs/{JOB}/figures/n1"), data(&report));
        recorded.pass(1);
        let page = page(&seen(&recorded.write(&folder.path().join("a.jsonl"))));
        assert!(!page.contains("<script>alert"), "it is escaped");
        let view = &held(&page)["view"];
        let display = &view["snapshot"]["jobs"][JOB]["about"]["display"];
        assert_eq!(
            (&display["values"][0]["label"], &display["tables"][0]["rows"][0]["x"]),
            (&json!(label), &json!(label))
        );
        let (pictures, remarks) = (display["pictures"].as_array().unwrap(), view["remarks"].to_string());
        assert_eq!(
            (pictures.len() == 1, !remarks.contains("the pictures of")),
            (is_whole, is_whole),
            "{remarks}"
        );
    }
}

#[test]
fn json_report_matches_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::new();
    recorded.run(JOB);
    let told = object(&seen(&recorded.write(&folder.path().join("a.jsonl"))));
    assert_eq!(
        (&told["id"], &told["source"], &told["remarks"]),
        (&json!(JOB), &json!("a.jsonl"), &json!([]))
    );
    assert_eq!(
        told["improvements"][2],
        json!({ "at_ms": SUBMITTED_MS + 41_000, "value": 40.0, "bound": 30.0, "gap": 0.25, "node": null })
    );
    assert_eq!(told["series"]["points"].as_array().unwrap().len(), 61);
    assert_eq!(told["nodes"].as_array().unwrap().len(), 3);
}
