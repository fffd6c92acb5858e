//! Images of a history: their number, and the selection of those that are sent.

use std::sync::Arc;

use posse_actors::conversation::{ContentPart, Message};

use crate::profile::{ModelFact, Quirks};

/// Maximum number of images in a request to a server without a configured limit.
const IMAGES_MAX: usize = 50;

/// Maximum total size of the images in a request to a server without a configured limit, in bytes
/// as they are sent.
const IMAGE_BYTES_MAX: usize = 20_000_000;

/// Selection of the images of a history that are sent: all, the newest ones, or none.
#[derive(Debug, Default)]
pub(crate) struct ImageSelection {
    /// True if the model accepts no images, and none is sent.
    pub(crate) blind: bool,
    /// Number of images that are omitted because of a limit. They are the oldest ones.
    pub(crate) left_out: usize,
    /// Notice for the user about images that are omitted because of a limit. `None`: none are, or
    /// the user was informed before.
    pub(crate) notice: Option<String>,
}

impl ImageSelection {
    /// Selects the images of `messages`. If the model accepts none, images of tool results are
    /// omitted, and an image of a user message is an error with the reason: then the request is not
    /// sent.
    pub(crate) fn of(
        messages: &[Arc<Message>],
        quirks: &Quirks,
        sight: &ModelFact<Option<String>>,
    ) -> Result<ImageSelection, String> {
        let bytes: Vec<usize> = messages.iter().flat_map(|message| images(message)).collect();
        if bytes.is_empty() {
            return Ok(ImageSelection::default());
        }
        let is_from_user = |message: &Arc<Message>| {
            matches!(**message, Message::User { .. }) && images(message).next().is_some()
        };
        let blindness = match sight.get().as_deref() {
            None if quirks.no_vision => Some("the configuration says so (quirks.noVision)"),
            blindness => blindness,
        };
        match blindness {
            Some(why) if messages.iter().any(is_from_user) => Err(why.to_owned()),
            Some(_) => Ok(ImageSelection { blind: true, ..ImageSelection::default() }),
            None => Ok(too_many(&bytes, quirks)),
        }
    }
}

/// Omits the oldest images beyond the limits of the server. `bytes`: length of the URL of each
/// image, usually a data URL, oldest first.
fn too_many(bytes: &[usize], quirks: &Quirks) -> ImageSelection {
    let images_max = quirks.max_images.unwrap_or(IMAGES_MAX);
    let bytes_max = quirks.max_image_bytes.unwrap_or(IMAGE_BYTES_MAX);
    let mut room = Some(bytes_max);
    let fits = |bytes: &&usize| {
        room = room.and_then(|room| room.checked_sub(**bytes));
        room.is_some()
    };
    let sent = bytes.iter().rev().take(images_max).take_while(fits).count();
    let left_out = bytes.len() - sent;
    let notice = (left_out > 0).then(|| {
        format!(
            "the oldest {left_out} of {} images are not sent: the provider takes {images_max} \
             images, {bytes_max} bytes of them in all",
            bytes.len()
        )
    });
    ImageSelection { blind: false, left_out, notice }
}

/// Number of images in a group of messages.
pub(crate) fn count(group: &[Arc<Message>]) -> usize {
    group.iter().map(|message| images(message).count()).sum()
}

fn images(message: &Message) -> impl Iterator<Item = usize> {
    let parts: &[ContentPart] = match message {
        Message::User { content } | Message::Tool { content, .. } => content,
        Message::System { .. } | Message::Assistant(_) => &[],
    };
    parts.iter().filter_map(|part| match part {
        ContentPart::ImageUrl { url, .. } => Some(url.len()),
        ContentPart::Text { .. } => None,
    })
}
