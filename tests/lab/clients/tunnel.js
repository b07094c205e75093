// tunnel.js URL: what programs do whose HTTP library knows no proxies: CONNECT by hand, then TLS and a request inside.
'use strict';
const http = require('http');
const tls = require('tls');

const url = new URL(process.argv[2]);
const secure = url.protocol === 'https:';
const proxy = new URL(secure ? process.env.https_proxy : process.env.http_proxy);
const target = `${url.hostname}:${url.port || (secure ? 443 : 80)}`;

const connect = http.request({
	host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: target, headers: {host: target}, timeout: 5000,
});
connect.on('timeout', () => connect.destroy(new Error('the guard does not answer')));
connect.on('connect', (reply, socket, head) => {
	if (reply.statusCode !== 200) {
		console.error(`${reply.statusCode} ${reply.statusMessage} [${reply.headers['x-egress-reason']}]`);
		socket.destroy();
		process.exit(3);
	}
	if (head.length)
		throw new Error('bytes before the tunnel was used');
	const stream = secure ? tls.connect({socket, servername: url.hostname}) : socket;
	http.get({
		host: url.hostname, path: url.pathname, createConnection: () => stream,
	}, (r) => r.pipe(process.stdout));
});
connect.on('error', (e) => { console.error(`error: ${e.message}`); process.exit(4); });
connect.end();
