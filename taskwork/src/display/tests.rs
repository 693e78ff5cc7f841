//! Displays from other processes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(parts: Value) -> JobDisplay {
    let mut content = parts;
    content["version"] = json!(VERSION);
    JobDisplay::read(&content).unwrap()
}

fn display() -> JobDisplay {
    let columns = vec![
        Column::new("task", "task", Unit::Text),
        Column::new("calls", "calls", Unit::Count),
        Column::new("time_s", "time", Unit::Seconds),
        Column::new("retries", "retries", Unit::Count).rare(),
    ];
    let row =
        |task: &str, calls: u64| Row::new().with("task", task).with("calls", calls).with("retries", 0_u64);
    let table = Table::new("tasks", "Calls by task", columns)
        .row(row("block", 1_100).with("time_s", 0.002))
        .row(row("multiply", 7))
        .total(row("all", 1_107));
    JobDisplay::new()
        .value(Field::new("calls", "calls", Unit::Count, 1_107_u64))
        .value(Field::new("phase", "phase", Unit::Text, "sorting"))
        .table(table)
        .picture(Picture::svg("a.svg", "a picture", "<svg><rect/></svg>".to_owned()))
        .picture(Picture::dot("a.dot", "a graph", "digraph { a -> b }".to_owned()))
        .document(Offer::new("call", "why a call waits").argument("NUMBER"))
        .document(Offer::new("graph.svg", "the graph of the calls").shown())
}

#[test]
fn display_survives_its_transfer() {
    let display = display();
    assert_eq!(JobDisplay::read(&json!(display)), Some(display.clone()));
    assert_eq!(
        (display.count_of("calls"), display.count_of("phase"), display.count_of("none")),
        (Some(1_107), None, None)
    );
}

#[test]
fn document_with_argument_is_not_requested_without_it() {
    let offer = |argument: Value| {
        let offer = json!({ "name": "a", "argument": argument, "shown": true });
        read(json!({ "documents": [offer] })).documents.remove(0).shown
    };
    assert_eq!((offer(Value::Null), offer(json!("NUMBER"))), (true, false));
}

#[test]
fn table_text_aligns_columns_and_leaves_out_rare_ones() {
    let mut table = display().tables.remove(0);
    let text = "\
TASK      CALLS     TIME
block     1,100  2.00 ms
multiply      7        -
all       1,107        -
";
    assert_eq!(table.to_string(), text);
    table.rows[1] = table.rows[1].clone().with("retries", 3_u64);
    table.omitted = 2_000;
    let text = table.to_string();
    assert!(text.contains("RETRIES") && text.ends_with("and 2,000 more rows\n"), "{text}");
}

#[test]
fn unknown_parts_are_skipped() {
    let read = read(json!({
        "values": [
            { "name": "a", "label": "a", "unit": "furlongs", "value": 1 },
            { "name": "b", "unit": "count", "value": 2, "colour": "red" },
            { "name": "c", "unit": "count", "value": "two" },
            { "name": "d", "unit": "text", "value": 4 },
            { "unit": "count", "value": 5 },
            7,
        ],
        "tables": [
            { "name": "t", "columns": [{ "name": "x", "unit": "number" }, { "name": "y", "unit": "hue" }],
              "rows": [{ "x": -1.5, "y": 2, "z": 3 }, { "x": [] }, "row"] },
            { "name": "u", "columns": [] },
            { "name": "v" },
        ],
        "pictures": [{ "name": "p", "format": "gif", "content": "" }, { "name": "q", "format": "text", "content": "" }],
        "films": [],
    }));
    let fields: Vec<_> =
        read.values.iter().map(|field| (field.name.as_str(), field.label.as_str(), field.text())).collect();
    assert_eq!(fields, [("b", "b", "2".to_owned()), ("c", "c", "-".to_owned()), ("d", "d", "-".to_owned())]);
    let [table] = &read.tables[..] else { panic!("{read:?}") };
    assert_eq!(table.to_string(), "   X\n-1.5\n   -\nand 1 more row\n");
    assert!(read.pictures.is_empty() && read.documents.is_empty());
}

#[test]
fn other_version_is_replaced_by_a_note() {
    let of = |version: Value| JobDisplay::read(&json!({ "version": version, "values": 7 }));
    let told = of(json!(9)).unwrap();
    assert_eq!(told.values[0].text(), "is in version 9, and this program reads version 1");
    for nothing in [json!("1"), json!(-1), Value::Null] {
        assert_eq!(of(nothing), None);
    }
    for content in [json!(7), Value::Null, json!([[]])] {
        assert_eq!(JobDisplay::read(&content), None);
    }
}

#[test]
fn hostile_content_is_bounded_and_sanitized() {
    let long = "ä\u{1b}[2J\n".repeat(100_000);
    let field = |name: &str| json!({ "name": name, "label": long, "unit": "text", "value": long });
    let names = ["", "a b", "../a", "-a", ".a", "<b>", "a\n", &"a".repeat(65)];
    let mut values: Vec<Value> = names.iter().map(|name| field(name)).collect();
    values.extend((0..1_000).map(|_| field("good")));
    let rows: Vec<Value> = (0..2_000).map(|at| json!({ "x": at })).collect();
    let columns: Vec<Value> = (0..1_000).map(|_| json!({ "name": "x", "unit": "count" })).collect();
    let pictures =
        ["<svg><script>alert(1)</script></svg>".to_owned(), format!("<svg>{}</svg>", "<g/>".repeat(100_000))];
    let read = read(json!({
        "values": values,
        "tables": [{ "name": "t", "columns": columns, "rows": rows, "omitted": u64::MAX }],
        "pictures": pictures.map(|content| json!({ "name": "p", "format": "svg", "content": content })),
        "documents": vec![json!({ "name": "d", "argument": long }); 100],
    }));
    assert_eq!(read.values.len(), 64);
    for field in &read.values {
        assert_eq!(
            (field.name.as_str(), field.label.chars().count(), field.text().chars().count()),
            ("good", 100, 300)
        );
        assert!(!field.text().contains(char::is_control));
    }
    let table = &read.tables[0];
    assert_eq!((table.columns.len(), table.rows.len(), table.omitted), (32, 1_000, u64::MAX));
    assert_eq!((read.pictures.len(), read.documents.len()), (0, 32));
    assert!(json!(read).to_string().len() < 256 << 10);
    assert_eq!(JobDisplay::read(&json!(read)), Some(read), "it is stable");
}

#[test]
fn document_answer_is_read_or_refused() {
    let document =
        Document::new(Format::Text, "call 7 waits".to_owned()).with_data(json!({ "state": "waits" }));
    assert_eq!(document_of(&answer_of(&Ok(document.clone()))), Ok(document));
    assert_eq!(Document::json(json!([1])).into_text(), "[1]");
    assert_eq!(document_of(&answer_of(&Err("no".to_owned()))), Err("no".to_owned()));
    let svg = |content: &str| document_of(&answer_of(&Ok(Document::new(Format::Svg, content.to_owned()))));
    assert!(svg("<svg/>").is_ok() && svg("<svg onload='alert(1)'/>").is_err());
    for answer in
        [json!(7), json!({ "version": 2, "document": { "format": "text" } }), json!({ "version": 1 })]
    {
        assert!(document_of(&answer).unwrap_err().contains("unknown format"));
    }
    let request = request_of("call", Some("7"));
    assert_eq!(requested(&request), Some(("call", Some("7"))));
    assert_eq!(requested(&json!({ "version": 2, "document": "call" })), None);
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "version",
        "values",
        "tables",
        "pictures",
        "documents",
        "name",
        "label",
        "unit",
        "value",
        "columns",
        "rows",
        "total",
        "omitted",
        "format",
        "content",
        "argument",
        "rare",
        "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["x", "text", "count", "svg", "dot", "<svg/>", "\u{1b}"])
            .prop_map(Value::from),
        Just(json!(1)),
    ];
    leaf.prop_recursive(5, 200, 12, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..12).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_content_is_read_stably(mut content in any_json()) {
        if let Some(fields) = content.as_object_mut() {
            fields.insert("version".to_owned(), json!(VERSION));
        }
        if let Some(read) = JobDisplay::read(&content) {
            prop_assert_eq!(JobDisplay::read(&json!(read)), Some(read));
        }
    }
}
