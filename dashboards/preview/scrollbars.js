// Grafana's tables take the default export of this older module, which bundlers wrap once too often.
import { Scrollbars } from './node_modules/react-custom-scrollbars-2/lib/index.js';

export default Scrollbars;
