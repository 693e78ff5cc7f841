//! Errors printed with all their sources repeat nothing.

use std::{error::Error, io, iter};

use serde::{Serialize, Serializer, ser::Error as _};

use crate::{
    id::{JobId, NodeId, TaskId},
    pool::PoolFault,
    report::JobError,
    shell::{
        errors::{SeatError, ServeError},
        transport::TransportError,
    },
    wire::codec,
};

/// Returns an error with all its sources, joined as usual by printers. Panics if any part of it is
/// repeated.
fn said_once(error: &dyn Error) -> String {
    let sources = iter::successors(Some(error), |&error| error.source());
    let said: Vec<String> = sources.map(ToString::to_string).collect();
    for (place, part) in said.iter().enumerate() {
        let again =
            said.iter().enumerate().any(|(other, text)| other != place && text.contains(part.as_str()));
        assert!(!again, "{part:?} is repeated in {said:?}");
    }
    said.join(": ")
}

struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("it has no bytes"))
    }
}

fn no_node() -> zk::Error {
    zk::Error::Multi { index: 1, cause: Box::new(zk::Error::NoNode { path: "/x".to_owned() }) }
}

fn listen() -> TransportError {
    let address = ([127, 0, 0, 1], 1).into();
    TransportError::Listen { address, cause: io::Error::new(io::ErrorKind::AddrInUse, "the port is taken") }
}

#[test]
fn job_errors_state_every_detail_exactly_once() {
    let unwritable = || codec::encode(&Unwritable).unwrap_err();
    let full =
        || zk::Error::NotKept { file: "x/tree.redb".to_owned(), reason: "the disk is full".to_owned() };
    let errors: [(JobError, &str); 6] = [
        (full().into(), "the disk is full"),
        (unwritable().into(), "it has no bytes"),
        (no_node().into(), "/x: no such znode"),
        (JobError::Thread(io::Error::other("too many threads")), "too many threads"),
        (JobError::Node(Box::new(SeatError::Transport(listen()))), "the port is taken"),
        (JobError::Node(Box::new(SeatError::Store(no_node()))), "/x: no such znode"),
    ];
    for (error, cause) in errors {
        let said = said_once(&error);
        assert!(said.contains(cause) && error.to_string() == said, "{said:?} does not contain {cause:?}");
    }
}

#[test]
fn other_errors_state_every_detail_once() {
    assert!(said_once(&codec::encode(&Unwritable).unwrap_err()).contains("it has no bytes"));
    said_once(&codec::decode::<String>(&[9, b'x']).unwrap_err());
    said_once(&codec::decode::<u8>(&[1, 2]).unwrap_err());
    said_once(&TransportError::Identity(rcgen::Error::CouldNotParseCertificate));
    said_once(&TransportError::Tls(rustls::Error::DecryptError));
    for error in [ServeError::Seat(SeatError::Transport(listen())), ServeError::Store(no_node())] {
        said_once(&error);
    }
    said_once(&PoolFault::Unsendable { task: TaskId::ROOT, reason: "it is too large".to_owned() });
    said_once(&"x".parse::<NodeId>().unwrap_err());
    said_once(&"x".parse::<JobId>().unwrap_err());
}
