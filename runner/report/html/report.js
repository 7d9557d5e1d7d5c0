const two = (number) => String(number).padStart(2, "0");
for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  time.textContent = time.className === "clock" ? clock : `${day} ${clock}`;
  time.title = time.dateTime;
}
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) document.getElementById("zone").textContent = `in your time zone, ${zone}`;
