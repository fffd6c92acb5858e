//! Places of paths behind links and `..`.

use super::*;

/// Links that the preparation finds if `/w/a/up` leads to `/w/b/c`, and `/w/new` does not exist.
fn links() -> Vec<PathLink> {
    let link = |path: &str, target: Option<&str>| PathLink {
        path: path.to_owned(),
        target: target.map(str::to_owned),
    };
    vec![
        link("/w/a/..", Some("/w")),
        link("/w/a/up/..", Some("/w/b")),
        link("/w/a/up/../..", Some("/w")),
        link("/w/new/..", None),
        link("/w/own/x", None),
        // A link that leads to the folder of a process.
        link("/w/process", None),
        link("/w/process/..", None),
    ]
}

fn path(text: &str) -> Place {
    Place::Path(text.to_owned())
}

#[test]
fn parent_of_a_link_is_that_of_its_target() {
    let links = links();
    let places = Places::resolved(&links);
    for (text, expected) in [
        ("/w/x", path("/w/x")),
        ("/w/a/up/x", path("/w/a/up/x")),
        ("/w/a/../x", path("/w/x")),
        ("/w/a/up/../x", path("/w/b/x")),
        ("/w/a/up/../../x", path("/w/x")),
        ("/../x", path("/x")),
        ("/w/a/../own/x", Place::Unknown),
        ("/w/owner", path("/w/owner")),
        ("/w/new/../x", path("/w/x")),
        ("/w/process/../x", Place::Unknown),
        // The preparation has not looked the path up.
        ("/w/other/../x", Place::Unknown),
    ] {
        assert_eq!(places.place(text, "/w"), Some(expected), "{text}");
    }
}

#[test]
fn names_that_the_command_makes_are_unknown() {
    let links = links();
    let many = [PathLink { path: "/".to_owned(), target: None }];
    assert_eq!(Places::resolved(&many).place("/w/x", "/w"), Some(Place::Unknown));
    let mut places = Places::resolved(&links);
    places.may_appear = true;
    assert_eq!(places.place("/w/new/../x", "/w"), Some(Place::Unknown));
    places.made.insert("/w/new".to_owned());
    assert_eq!(places.place("/w/new/../x", "/w"), Some(path("/w/x")));
    places.renamed.push(NewPlace {
        from: None,
        to: "/w/a".to_owned(),
        is_copy: false,
        keeps_folder: false,
        is_link: false,
    });
    assert_eq!(places.place("/w/a/../x", "/w"), Some(Place::Unknown));
    assert_eq!(places.place("/w/\u{10FFFD}/x", "/w"), None);
}

#[test]
fn links_at_places_that_are_not_known_make_parents_unknown() {
    let links = links();
    let mut places = Places::resolved(&links);
    places.names_anywhere = true;
    for (text, expected) in [
        // An existing folder stays one, and so does the target of a link.
        ("/w/a/../x", path("/w/x")),
        ("/w/a/up/../x", path("/w/b/x")),
        ("/w/new/../x", Place::Unknown),
        ("/w/new/x", path("/w/new/x")),
    ] {
        assert_eq!(places.place(text, "/w"), Some(expected), "{text}");
    }
    places.made.insert("/w/new".to_owned());
    assert_eq!(places.place("/w/new/../x", "/w"), Some(path("/w/x")));
    places.may_vanish = true;
    for text in ["/w/new/../x", "/w/a/../x", "/w/a/up/../x"] {
        assert_eq!(places.place(text, "/w"), Some(Place::Unknown), "{text}");
    }
}

#[test]
fn patterns_that_match_too_many_names_are_unknown() {
    let star = |text: &str| text.replace('*', &crate::shell::word::active('*').to_string());
    for (folder, unknown, known) in [("//", "/*/x", "/w/x"), ("/w/", "/w/*.rs", "/w/x/*.rs")] {
        let links = [PathLink { path: folder.to_owned(), target: None }];
        let places = Places::resolved(&links);
        assert_eq!(places.place(&star(unknown), "/w"), Some(Place::Unknown), "{folder}");
        assert_eq!(places.place(&star(known), "/w"), Some(path(&star(known))), "{folder}");
    }
}

#[test]
fn links_of_proc_lead_to_folders_and_descriptors() {
    let places = Places::default();
    for (text, expected) in [
        ("/proc/self/cwd/x", path("/w/x")),
        ("/proc/1/root/w/x", path("/w/x")),
        ("/dev/fd/../cwd/x", path("/w/x")),
        ("/proc/self/fd/../cwd/x", path("/w/x")),
        ("/proc/self/task/1/cwd/x", path("/w/x")),
        ("/dev/fd/1", Place::Descriptor(true)),
        ("/dev/stdin", Place::Descriptor(false)),
        ("/dev/fd/3/x", Place::Unknown),
        ("/dev/fd/3/../x", Place::Unknown),
        ("/dev/stdin/../x", Place::Unknown),
        ("/proc/self/map_files/x", Place::Unknown),
        ("/proc/self/exe", Place::Unknown),
        ("/proc/self/status", path("/proc/self/status")),
        ("/proc/meminfo", path("/proc/meminfo")),
        ("/dev/null", path("/dev/null")),
    ] {
        assert_eq!(places.place(text, "/w"), Some(expected), "{text}");
    }
}
