//! Connections that are refused, each in three protocols, with a client that reaches a listed
//! server otherwise.

use std::net::SocketAddr;

use super::{FileServer, Rig, get, socks_to};

/// Destinations that nothing may reach without an entry of their own. Names lead to the loopback
/// server.
const REFUSED: [(&str, u16); 40] = [
    ("127.0.0.1", 80),
    ("127.0.0.1", 22),
    ("127.1", 80),
    ("127.0.0.2", 443),
    ("0x7f.1", 80),
    ("0x7f000001", 80),
    ("2130706433", 80),
    ("017700000001", 80),
    ("0177.0.0.1", 443),
    ("0", 80),
    ("0.0.0.0", 80),
    ("10.0.0.1", 443),
    ("10.1", 80),
    ("100.64.0.1", 80),
    ("100.100.100.200", 80),
    ("168.63.129.16", 80),
    ("169.254.169.254", 80),
    ("0xa9fea9fe", 80),
    ("172.16.0.1", 443),
    ("192.168.1.1", 80),
    ("224.0.0.1", 80),
    ("255.255.255.255", 80),
    ("1.1.1.1", 443),
    ("8.8.8.8", 53),
    ("localhost", 80),
    ("LOCALHOST.", 80),
    ("a.localhost", 80),
    ("intranet", 80),
    ("metadata.google.internal", 80),
    ("printer.local", 631),
    ("router.lan", 80),
    ("nas.home.arpa", 443),
    ("unlisted.example", 80),
    ("unlisted.example", 443),
    ("unlisted.example", 22),
    ("unlisted.example", 25),
    ("ok.example", 22),
    ("ok.example", 8080),
    ("sub.ok.example", 443),
    ("xn--k-fka.example", 443),
];

/// IPv6 destinations, which HTTP writes in brackets.
const REFUSED_V6: [&str; 10] = [
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
    "fe80::1",
    "fd00:ec2::254",
    "ff02::1",
    "2606:4700:4700::1111",
];

fn is_refused(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    // SOCKS: refused by the rules, after the answer to the greeting.
    text.starts_with("HTTP/1.1 403") || answer.get(2..4) == Some(&[5, 2])
}

#[test]
fn destinations_without_an_entry_are_refused_in_every_protocol() {
    let server = FileServer::start(None);
    let mut rig = Rig::new(&["ok.example"]).named("ok.example", server.address);
    let leads = |name: &str| (name.to_ascii_lowercase(), vec![server.address]);
    rig.names.extend(REFUSED.iter().map(|(name, _)| leads(name)));
    let running = rig.run();
    let v6 = REFUSED_V6.iter().map(|host| (format!("[{host}]"), 80));
    let all = REFUSED.iter().map(|(host, port)| ((*host).to_owned(), *port)).chain(v6);
    let mut rows = 0;
    for (host, port) in all {
        let connect =
            running.exchange(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n").as_bytes());
        let plain = running.exchange(get(&format!("http://{host}:{port}/")).as_bytes());
        let socks = running.exchange(&socks_to(host.trim_matches(['[', ']']), port));
        for answer in [connect, plain, socks] {
            assert!(is_refused(&answer), "{host}:{port} {:?}", String::from_utf8_lossy(&answer));
            rows += 1;
        }
    }
    assert_eq!((rows, server.count()), (150, 0));
    let looked_up = running.resolver.asked.lock().unwrap().clone();
    assert!(looked_up.is_empty(), "{looked_up:?}");
    // The control: the same clients reach what is listed.
    assert!(running.text(&get("http://ok.example/")).contains("200 OK"));
    assert!(
        running
            .text("CONNECT ok.example:443 HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n")
            .contains("200 OK")
    );
    let socks = [socks_to("ok.example", 443), b"GET / HTTP/1.0\r\n\r\n".to_vec()].concat();
    assert!(String::from_utf8_lossy(&running.exchange(&socks)).contains("200 OK"));
    assert_eq!(server.count(), 3);
}

#[test]
fn addresses_in_socks_requests_are_refused() {
    let server = FileServer::start(None);
    let port = server.address.port().to_be_bytes();
    let v4 = |address: [u8; 4]| [&[5, 1, 0, 5, 1, 0, 1][..], &address, &port].concat();
    let mapped = [&[5, 1, 0, 5, 1, 0, 4][..], &[0; 10], &[255, 255, 127, 0, 0, 1], &port].concat();
    let running = Rig::new(&[]).run();
    for request in [v4([127, 0, 0, 1]), v4([10, 0, 0, 1]), v4([1, 1, 1, 1]), mapped.clone()] {
        assert!(is_refused(&running.exchange(&request)), "{request:?}");
    }
    let listed = Rig::new(&[&server.address.to_string()]).run();
    for request in [v4([127, 0, 0, 1]), mapped] {
        let answer = listed.exchange(&[request, b"GET / HTTP/1.0\r\n\r\n".to_vec()].concat());
        assert!(String::from_utf8_lossy(&answer).contains("200 OK"));
    }
}

/// A listed name whose server moves it to the machine, its network or a metadata service.
#[test]
fn listed_names_that_lead_inside_are_refused() {
    let server = FileServer::start(None);
    let port = server.address.port();
    let public: SocketAddr = "93.184.216.34:80".parse().unwrap();
    let inside = [
        format!("127.0.0.1:{port}"),
        format!("0.0.0.0:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        "10.0.0.1:80".to_owned(),
        "192.168.0.1:80".to_owned(),
        "100.64.0.1:80".to_owned(),
        "169.254.169.254:80".to_owned(),
        "[fd00:ec2::254]:80".to_owned(),
        "[fe80::1]:80".to_owned(),
        "[64:ff9b::a9fe:a9fe]:80".to_owned(),
    ];
    for address in &inside {
        let address: SocketAddr = address.parse().unwrap();
        for found in [vec![address], vec![public, address], vec![address, public]] {
            let mut rig = Rig::new(&["rebound.example"]);
            rig.names.push(("rebound.example".to_owned(), found));
            let running = rig.run();
            let answer = running.text(&get("http://rebound.example/"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{address} {answer}");
            assert!(answer.contains("its name leads to"), "{answer}");
        }
    }
    assert_eq!(server.count(), 0);
    let rig = Rig::new(&["rebound.example"]).named("rebound.example", server.address);
    assert!(rig.run().text(&get("http://rebound.example/")).contains("200 OK"));
}

/// A redirect is a new request of the client, judged like the first.
#[test]
fn a_redirect_inside_is_judged_like_any_request() {
    let server = FileServer::start(None);
    let running = Rig::new(&["ok.example"]).named("ok.example", server.address).run();
    assert!(running.text(&get("http://ok.example/redirects")).contains("200 OK"));
    for location in ["http://127.0.0.1/", "http://169.254.169.254/latest/", "http://[::1]/"] {
        assert!(is_refused(&running.exchange(get(location).as_bytes())), "{location}");
    }
    // A second request on the connection of the first one reaches no server.
    let two = format!("{}{}", get("http://ok.example/"), get("http://127.0.0.1/second"));
    assert!(running.text(&two).contains("200 OK"));
    assert!(server.requests.lock().unwrap().iter().all(|head| !head.contains("second")));
}

#[test]
fn an_answer_opens_no_address_and_no_other_port() {
    let yes = crate::Approval::Allowed { lasting: true };
    let server = FileServer::start(None);
    let mut rig = Rig::new(&[]).answering(Some(yes));
    rig.names.push(("new.example".to_owned(), vec![server.address]));
    let running = rig.run();
    for url in ["http://new.example/", "http://new.example:8080/", "http://127.0.0.1/"] {
        let answer = running.text(&get(url));
        assert!(answer.starts_with("HTTP/1.1 403"), "{url} {answer}");
    }
    assert_eq!((server.count(), running.approver.asked.lock().unwrap().len()), (0, 1));
}

#[test]
fn blocked_domains_win_over_allowed_ones() {
    let server = FileServer::start(None);
    let mut rig = Rig::new(&["*.ok.example"]).named("bad.ok.example", server.address);
    rig.names.push(("good.ok.example".to_owned(), vec![server.address]));
    rig.blocked.push("bad.ok.example".to_owned());
    let running = rig.run();
    assert!(running.text(&get("http://bad.ok.example/")).contains("network.blockedDomains"));
    assert!(running.text(&get("http://good.ok.example/")).contains("200 OK"));
    let (lines, _) = running.finish();
    assert_eq!(lines.len(), 1);
}

#[test]
fn other_commands_of_socks_and_rubbish_are_refused() {
    let server = FileServer::start(None);
    let running = Rig::new(&["ok.example"]).named("ok.example", server.address).run();
    let mut bind = socks_to("ok.example", 80);
    bind[4] = 2;
    let mut udp = socks_to("ok.example", 80);
    udp[4] = 3;
    let mut strange_kind = socks_to("ok.example", 80);
    strange_kind[6] = 9;
    for (request, code) in [(bind, 7), (udp, 7), (strange_kind, 8)] {
        assert_eq!(running.exchange(&request)[2..4], [5, code]);
    }
    assert_eq!(running.exchange(&[5, 1, 2]), [5, 0xff], "a password is no method");
    let rubbish: [&[u8]; 9] = [
        b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT ok.example HTTP/1.1\r\n\r\n",
        b"CONNECT http://ok.example:443/ HTTP/1.1\r\n\r\n",
        b"GET https://ok.example/ HTTP/1.1\r\n\r\n",
        b"GET http://ok.example/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n",
    ];
    for bytes in rubbish {
        let answer = running.exchange(bytes);
        assert!(answer.starts_with(b"HTTP/1.1 400"), "{bytes:?} {answer:?}");
    }
    let endless = running.exchange(&vec![b'A'; 64 << 10]);
    assert!(endless.is_empty() || endless.starts_with(b"HTTP/1.1 4"));
    assert_eq!(server.count(), 0);
    assert!(running.text(&get("http://ok.example/")).contains("200 OK"));
}
