use proptest::{collection::vec, prelude::*};

use super::*;

fn parse(json: &str) -> Result<Space, String> {
    super::parse(&RawValue::from_string(json.to_owned()).unwrap())
}

fn points(space: &Space) -> Vec<String> {
    (0..space.len()).map(|index| space.argument(index).unwrap().to_string()).collect()
}

#[test]
fn space_has_arguments_up_to_its_end() {
    let range = Space::Range { from: -1, to: 2 };
    assert_eq!((range.len(), points(&range)), (3, ["-1", "0", "1"].map(str::to_owned).to_vec()));
    assert!(range.argument(3).is_err() && range.argument(u64::MAX).is_err());
    let list = Space::List(vec!["[1]".to_owned()]);
    assert_eq!((list.len(), list.argument(0).unwrap().get()), (1, "[1]"));
    assert!(list.argument(1).is_err());
    assert_eq!(Space::Range { from: 5, to: 5 }.len(), 0);
}

#[test]
fn product_combines_its_axes_in_the_order_of_the_document() {
    let space = parse(r#"{"product": {"y": {"range": [0, 2]}, "b": ["u", null]}}"#).unwrap();
    let named = [r#"{"y":0,"b":"u"}"#, r#"{"y":0,"b":null}"#, r#"{"y":1,"b":"u"}"#, r#"{"y":1,"b":null}"#];
    assert_eq!(points(&space), named);
    assert!(space.argument(4).is_err() && space.argument(u64::MAX).is_err());
    let space = parse(r#"{"product": [{"zip": [[1, 2], {"list": ["a", "b"]}]}, [true]]}"#).unwrap();
    assert_eq!(points(&space), [r#"[[1,"a"],true]"#, r#"[[2,"b"],true]"#]);
    assert_eq!(parse(r#"{"product": [[1, 2], []]}"#).unwrap().len(), 0);
    assert!(parse(r#"{"product": [[1, 2], []]}"#).unwrap().argument(0).is_err());
}

#[test]
fn space_of_a_quintillion_points_is_counted_and_indexed() {
    let text = r#"{"product": [{"range": [0, 1000000000]}, {"range": [0, 1000000000]}]}"#;
    let space = parse_at(&RawValue::from_string(text.to_owned()).unwrap(), "arguments", 0).unwrap();
    assert_eq!(space.len(), POINTS_MAX);
    assert_eq!(space.check_len_at("arguments"), Ok(()));
    assert_eq!(space.argument(POINTS_MAX - 1).unwrap().get(), "[999999999,999999999]");
    assert_eq!(space.argument(123_456_789_000_000_042).unwrap().get(), "[123456789,42]");
    assert!(space.argument(POINTS_MAX).is_err());
    assert_eq!(space.samples().collect::<Vec<_>>(), [0, 999_999_999, 0, 999_999_999_000_000_000]);
    assert!(parse(text).unwrap_err().contains("at most 1000000000 calls, not 1000000000000000000"));
    let large = text.replace("]}]}", "]}, [1, 2]]}");
    assert!(parse(&large).unwrap_err().contains("`arguments.product` has more than 10^18 points"));
    // The product of the axes would overflow before the empty one.
    let empty = text.replace("]}]}", "]}, {\"range\": [0, 1000000000]}, []]}");
    assert_eq!(parse(&empty).map(|space| space.len()), Ok(0));
}

#[test]
fn invalid_spaces_are_refused_with_place_and_remedy() {
    let deep = format!("{}[1]{}", r#"{"zip":["#.repeat(9), "]}".repeat(9));
    let wide = format!(r#"{{"product": [{}[1]]}}"#, "[1],".repeat(100));
    for (json, parts) in [
        (r#"{"product": {"x": [1, 1e999]}}"#, ["arguments.product.x", "argument 1"]),
        (r#"{"product": [[1], {"range": [2, 1]}]}"#, ["range", "[2, 1]"]),
        (r#"{"product": [[1], 7]}"#, ["arguments.product[1]", "neither a list nor"]),
        (r#"{"product": []}"#, ["arguments.product", "give 1 to 100"]),
        (&*wide, ["101 axes", "give 1 to 100"]),
        (r#"{"product": 1}"#, ["arguments.product", "object of axes"]),
        (r#"{"product": {"x": [1], "x": [2]}}"#, ["\"x\" twice", "remove one"]),
        (r#"{"product": {"$resource": ["a"]}}"#, ["arguments.product", "names with $ are reserved"]),
        (r#"{"zip": {"x": [1, 2], "y": [1]}}"#, ["`arguments.zip.x` has 2 points", "equal numbers"]),
        (r#"{"product": [{"zip": [[], [1]]}]}"#, ["arguments.product[0].zip[1]", "equal numbers"]),
        (&*deep, ["nested more than 8", "merge"]),
        (r#"{"grid": [[1]]}"#, ["arguments.grid", "write range"]),
        (r#"{"range": [0, 1], "list": []}"#, ["neither", "one of the fields"]),
        (r#"{"range": 3}"#, ["arguments.range", "[FROM, TO]"]),
        (r#"{"file": ["a"]}"#, ["arguments.file", "name of a resource"]),
    ] {
        let refused = parse(json).unwrap_err();
        assert!(parts.iter().all(|part| refused.contains(part)), "{json}: {refused}");
    }
}

#[test]
fn lines_of_a_file_are_an_axis() {
    let space = parse(r#"{"zip": {"x": {"file": "cases"}, "y": [1, 2]}}"#).unwrap();
    let mut read = |part, depth| match part {
        Space::File(name) => lines(&name, "[0, 1]\r\n\n\"b\"\n", depth),
        part => Ok(part),
    };
    let space = space.try_map(&mut read).unwrap();
    assert_eq!(space.check_len(), Ok(()));
    assert_eq!(points(&space), [r#"{"x":[0, 1],"y":1}"#, r#"{"x":"b","y":2}"#]);
    assert!(lines("cases", "1\nx", 0).unwrap_err().contains("line 2 of the resource cases"));
    assert!(lines("cases", "18446744073709551616", 0).unwrap_err().contains("line 1"));
}

#[test]
fn values_in_axes_are_as_deep_as_those_without() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    let within = |depth| format!(r#"{{"zip": [{{"product": {{"x": [{}]}}}}]}}"#, nested(depth));
    assert_eq!(parse(&within(98)).map(|space| space.len()), Ok(1));
    let refused = parse(&within(99)).unwrap_err();
    assert!(
        refused.contains("`arguments.zip[0].product.x`, argument 0") && refused.contains("100 deep"),
        "{refused}"
    );
    assert!(lines("cases", &nested(98), 2).is_ok() && lines("cases", &nested(99), 2).is_err());
    let space = parse(r#"{"zip": [{"file": "a"}, {"zip": [{"file": "b"}]}]}"#).unwrap();
    let mut depths = Vec::new();
    let noted = space.try_map(&mut |part, depth| {
        depths.push(depth);
        Ok::<_, ()>(part)
    });
    assert!(noted.is_ok() && depths == [1, 2], "{depths:?}");
}

#[test]
fn points_of_a_zip_are_checked_once() {
    let space = parse(r#"{"zip": [[1, 2, 3], {"range": [0, 3]}, ["a", "b", "c"]]}"#).unwrap();
    assert_eq!(space.samples().collect::<Vec<_>>(), [0, 1, 2]);
}

fn space() -> impl Strategy<Value = Space> {
    let leaf = prop_oneof![
        (-9_i64..9, 0_i64..5).prop_map(|(from, len)| Space::Range { from, to: from + len }),
        vec(0_u8..9, 0..4).prop_map(|values| Space::List(values.iter().map(u8::to_string).collect())),
    ];
    leaf.prop_recursive(3, 20, 3, |inner| {
        (vec(inner, 1..4), any::<bool>(), any::<bool>()).prop_map(|(spaces, is_named, is_zip)| {
            let names =
                if is_named { (0..spaces.len()).map(|at| format!("p{at}")).collect() } else { Vec::new() };
            let is_zip = is_zip && spaces.iter().all(|space| space.len() == spaces[0].len());
            let axes = Axes { names, spaces };
            if is_zip { Space::Zip(axes) } else { Space::Product(axes) }
        })
    })
}

/// Returns all points by nested loops.
fn materialised(space: &Space) -> Vec<String> {
    let Space::Product(Axes { names, spaces }) = space else {
        let Space::Zip(Axes { names, spaces }) = space else { return points(space) };
        let axes: Vec<_> = spaces.iter().map(materialised).collect();
        let point = |at: usize| axes.iter().map(|axis: &Vec<String>| axis[at].clone()).collect::<Vec<_>>();
        return (0..axes[0].len()).map(|at| joined(names, &point(at))).collect();
    };
    let mut rows = vec![Vec::new()];
    for axis in spaces.iter().map(materialised) {
        let longer = |row: &Vec<String>| {
            axis.iter().map(|value| [&row[..], std::slice::from_ref(value)].concat()).collect()
        };
        rows = rows.iter().flat_map(|row| -> Vec<Vec<String>> { longer(row) }).collect();
    }
    rows.iter().map(|row| joined(names, row)).collect()
}

fn joined(names: &[String], row: &[String]) -> String {
    if names.is_empty() {
        return format!("[{}]", row.join(","));
    }
    let fields: Vec<String> =
        names.iter().zip(row).map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

proptest! {
    #[test]
    fn points_are_those_of_nested_loops(space in space()) {
        prop_assert_eq!(points(&space), materialised(&space));
        prop_assert!(space.argument(space.len()).is_err());
        prop_assert!(space.samples().all(|index| space.argument(index).is_ok()));
    }

    #[test]
    fn different_spaces_have_different_digests(one in space(), other in space()) {
        prop_assert_eq!(one == other, one.digest() == other.digest());
    }
}
