//! The address at which other nodes reach a node.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use crate::shell::platform::{Advertise, HostName};

/// The address at which other nodes reach a node: an IP address or a host name, with or without a port. The default
/// port is the one that the node listens on.
///
/// The node itself resolves a host name whenever it joins, and publishes the IP address. Of several addresses, it
/// uses one of the address family that it listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub(super) Advertise);

impl Address {
    /// Returns the IP address; `None` for a host name.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self.0.host {
            HostName::Ip(ip) => Some(ip),
            HostName::Name(_) => None,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(Advertise { host: HostName::Ip(ip), port: None })
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(Advertise { host: HostName::Ip(address.ip()), port: Some(address.port()) })
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(ip.into());
        }
        let expected = || "expected an IP address or the name of a host, with or without :PORT".to_owned();
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_| expected())?)),
            None => (text, None),
        };
        if !is_host_name(name) {
            return Err(expected());
        }
        Ok(Self(Advertise { host: HostName::Name(name.to_owned()), port }))
    }
}

const HOST_NAME_MAX: usize = 253;

/// Returns whether a text may be a host name. One that ends with a number is not: it is a mistyped address.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        label.len() <= 63
            && ends(label.chars().next())
            && ends(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    let relative = text.strip_suffix('.').unwrap_or(text);
    let last = relative.rsplit('.').next().unwrap_or_default();
    text.len() <= HOST_NAME_MAX
        && relative.split('.').all(is_label)
        && !last.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Advertise, String> {
        text.parse().map(|Address(advertise)| advertise)
    }

    fn named(name: &str, port: Option<u16>) -> Advertise {
        Advertise { host: HostName::Name(name.to_owned()), port }
    }

    fn at(ip: &str, port: Option<u16>) -> Advertise {
        Advertise { host: HostName::Ip(ip.parse().unwrap()), port }
    }

    #[test]
    fn address_is_an_ip_address_or_a_host_name() {
        assert_eq!(parsed("192.0.2.17"), Ok(at("192.0.2.17", None)));
        assert_eq!(parsed("192.0.2.17:7420"), Ok(at("192.0.2.17", Some(7420))));
        assert_eq!(parsed("2001:db8::1"), Ok(at("2001:db8::1", None)));
        assert_eq!(parsed("[2001:db8::1]:7420"), Ok(at("2001:db8::1", Some(7420))));
        assert_eq!(parsed("node-3.nodes.tsp.svc"), Ok(named("node-3.nodes.tsp.svc", None)));
        assert_eq!(parsed("localhost:7420"), Ok(named("localhost", Some(7420))));
    }

    #[test]
    fn invalid_address_is_rejected() {
        let long = "a.".repeat(200);
        for text in ["", ":1", "a b", "host:", "host:70000", "192.0.2.300", "-a", "a..b", "http://a", &long] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }
}
