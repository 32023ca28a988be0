// Keeps the page as it is now, by server-sent events, and ages between them.
// Without it the page shows what was when it was loaded.
"use strict";
(() => {
	const main = document.querySelector("main");
	const topic = document.body.dataset.topic;
	let ahead = 0; // of this clock to the server's, in ms
	let heard = Date.now();
	let source = null;
	const streams = topic && topic !== "error";

	// ago is the function of that name in text.go.
	const ago = (ms) => {
		const s = Math.max(0, ms) / 1000, two = (n) => String(Math.floor(n) % 60).padStart(2, "0");
		if (s < 60) return Math.floor(s) + "s";
		if (s < 3600) return Math.floor(s / 60) + "m" + two(s) + "s";
		if (s < 172800) return Math.floor(s / 3600) + "h" + two(s / 60) + "m";
		return Math.floor(s / 86400) + "d";
	};
	const tick = () => {
		for (const t of main.querySelectorAll("time:not([data-clock])")) {
			const text = ("most" in t.dataset ? "≤" : "") + ago(Date.now() - ahead - Date.parse(t.dateTime));
			if (t.textContent !== text) t.textContent = text;
		}
		document.getElementById("lost").hidden = document.hidden || !streams || Date.now() - heard < 8000;
	};

	// adopt makes an element like another one, and keeps what is alike: the focus,
	// a selection, what was typed and unfolded. Children that have a key are matched
	// by it, wherever they are now, the others in their order.
	const key = (node) => node.dataset && node.dataset.key;
	const adopt = (old, now) => {
		if (old.nodeName !== now.nodeName) return old.replaceWith(now);
		if (old.nodeType !== Node.ELEMENT_NODE) {
			if (old.data !== now.data) old.data = now.data;
			return;
		}
		for (const a of [...old.attributes]) if (a.name !== "open" && !now.hasAttribute(a.name)) old.removeAttribute(a.name);
		for (const a of now.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
		const keyed = new Map(), others = [];
		for (const node of old.childNodes) key(node) ? keyed.set(key(node), node) : others.push(node);
		const pairs = [...now.childNodes].map((node) => {
			const match = key(node) ? keyed.get(key(node)) : others.shift();
			keyed.delete(key(node));
			return [match, node];
		});
		const kept = new Set(pairs.map(([match]) => match));
		for (const node of [...old.childNodes]) if (!kept.has(node)) node.remove();
		let at = old.firstChild;
		for (const [match, node] of pairs) {
			if (match && match === at) at = at.nextSibling;
			else old.insertBefore(match || node, at);
			if (match) adopt(match, node);
		}
	};
	const show = (html) => {
		const now = document.createElement("main");
		now.innerHTML = html;
		const keep = main.cloneNode(false);
		keep.append(...now.childNodes);
		const focus = document.activeElement;
		adopt(main, keep);
		if (focus !== document.activeElement && main.contains(focus)) focus.focus({preventScroll: true}); // it has moved
		tick();
	};

	const close = () => { if (source) source.close(); source = null; };
	const open = () => {
		close();
		if (document.hidden || !streams) return;
		const query = new URLSearchParams(location.search);
		query.set("topic", topic === "now" ? "" : topic);
		source = new EventSource("events?" + query);
		source.addEventListener("at", (e) => { heard = Date.now(); ahead = heard - Number(e.data); tick(); });
		source.addEventListener("content", (e) => show(e.data));
		source.addEventListener("error", () => { if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(open, 5000); } });
	};

	// The filter stands in the address, and takes effect while it is typed.
	let typing = 0;
	const filtered = () => {
		const query = new URLSearchParams(new FormData(main.querySelector("form.filter")));
		history.replaceState(null, "", "?" + query);
		open();
	};
	main.addEventListener("input", (e) => {
		if (!e.target.closest("form.filter")) return;
		clearTimeout(typing);
		typing = setTimeout(filtered, 250);
	});
	main.addEventListener("submit", (e) => {
		if (!e.target.closest("form.filter")) return;
		e.preventDefault();
		clearTimeout(typing);
		filtered();
	});
	document.addEventListener("visibilitychange", () => {
		if (document.hidden) return close();
		heard = Date.now();
		open();
	});
	addEventListener("pagehide", close);

	// A link that zkr web has printed has a token, which is not for the eye.
	const forget = () => {
		const id = location.hash.slice(1);
		if (id && !document.getElementById(id)) history.replaceState(null, "", location.pathname + location.search);
	};
	addEventListener("hashchange", forget);
	forget();
	setInterval(tick, 1000);
	open();
})();
