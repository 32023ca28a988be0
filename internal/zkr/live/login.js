// Posts the token that the link has, and takes it out of the address.
"use strict";
const token = location.hash.slice(1);
if (token) {
	history.replaceState(null, "", location.pathname);
	document.getElementById("token").value = token;
	document.querySelector("form").submit();
}
